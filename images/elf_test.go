package images

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The test of hack/release has programs that are static, for both platforms.
func TestCheckStaticRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for _, tt := range []struct{ name, file, arch, want string }{
		{"needs a dynamic linker", "/bin/sh", "", "/bin/sh needs a dynamic linker: build it with CGO_ENABLED=0"},
		{"another machine", "/bin/sh", other, "not for " + other + ": build it with GOARCH=" + other},
		{"no program", text, "", text + " is not a program: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckStatic(Image{Name: "a:b", Arch: tt.arch, Files: map[string]string{"/x": tt.file}})
			if err == nil || !strings.HasPrefix(err.Error(), "image a:b: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
