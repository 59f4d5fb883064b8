package version

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// The number is one of Semantic Versioning 2.0.0, without build metadata: it is also the tag of the images.
func TestNumber(t *testing.T) {
	if !regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`).MatchString(Number) {
		t.Errorf("VERSION is %q", Number)
	}
	if text, err := os.ReadFile("VERSION"); err != nil || string(text) != Number+"\n" {
		t.Errorf("VERSION is %q, %v; want one line", text, err)
	}
}

func TestDescribe(t *testing.T) {
	const commit = "384aff85fdced4ee7c7aa2506cfff85bb64cc1d9"
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, tt := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"nothing is known", debug.BuildInfo{}, ""},
		{"built outside a clone", debug.BuildInfo{GoVersion: "go1.26.0"}, " (go1.26.0)"},
		{"built in a clone", debug.BuildInfo{GoVersion: "go1.26.0", Settings: []debug.BuildSetting{
			setting("-trimpath", "true"), setting("vcs.revision", commit), setting("vcs.modified", "false"),
		}}, " (commit " + commit + ", go1.26.0)"},
		{"built with uncommitted changes", debug.BuildInfo{Settings: []debug.BuildSetting{
			setting("vcs.modified", "true"), setting("vcs.revision", commit),
		}}, " (commit " + commit + "-dirty)"},
		{
			"a modified tree of no commit",
			debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.modified", "true")}}, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := describe(&tt.info); got != Number+tt.want {
				t.Errorf("got %q, want %q", got, Number+tt.want)
			}
		})
	}
	if got := String(); !strings.HasPrefix(got, Number+" (") {
		t.Errorf("this test says %q", got)
	}
}
