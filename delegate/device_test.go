package delegate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

func wanting(device bool) *conflist {
	return &conflist{stubs: &libcni.NetworkConfigList{Plugins: []*libcni.PluginConfig{
		{Network: &types.PluginConf{}}, {Network: &types.PluginConf{Capabilities: map[string]bool{deviceCapability: device}}},
	}}}
}

// The folder is everybody's who writes device information: what is in it is not trusted.
// Conformance: N-125
func TestReadDevice(t *testing.T) {
	const good = `{"type":"pci"}`
	put := func(t *testing.T, path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name  string
		write func(t *testing.T, path string)
		want  string
		err   string // PATH stands for the file
	}{
		{"a file", func(t *testing.T, path string) { put(t, path, good) }, good, ""},
		{"none", func(*testing.T, string) {}, "", ""},
		{"not JSON", func(t *testing.T, path string) { put(t, path, "{") }, "", "device information: PATH is not valid JSON"},
		{"empty", func(t *testing.T, path string) { put(t, path, "") }, "", "device information: PATH is not valid JSON"},
		{"too large", func(t *testing.T, path string) { put(t, path, `"`+strings.Repeat("x", maxDevice)+`"`) }, "", "device information: PATH has more than 65536 bytes"},
		{"a link to a good one", func(t *testing.T, path string) {
			put(t, path+".good", good)
			if err := os.Symlink(path+".good", path); err != nil {
				t.Fatal(err)
			}
		}, "", "device information: open PATH: too many levels of symbolic links"},
		{"a folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "", "device information: PATH is no plain file"},
		{"a pipe that nobody writes to", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "", "device information: PATH is no plain file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c1-net1-device.json")
			tt.write(t, path)
			got, err := wanting(true).readDevice(&agentapi.Delegate{}, path)
			if tt.err != "" {
				if want := strings.ReplaceAll(tt.err, "PATH", path); got != nil || err == nil || err.Error() != want || !conf.HasCode(err, conf.CodeDelegateFailed) {
					t.Errorf("got %s, %v; want %s", got, err, want)
				}
			} else if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
			// Plugins that do not take the file have nothing to say.
			if got, err := wanting(false).readDevice(&agentapi.Delegate{}, path); got != nil || err != nil {
				t.Errorf("of plugins that take no file: %s, %v", got, err)
			}
		})
	}
}

// What a call that was killed left is not the next one's, and nothing is left at the end.
// Conformance: D-3
func TestDeviceFileOfACall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devinfo", "cni", "c1-net1-device.json")
	for range 2 {
		if err := wanting(true).prepareDevice(&agentapi.Delegate{}, path); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an old file is there: %v", err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err) // also when the folder is not there
		}
	}
	for range 2 {
		if err := dropDevice(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
	elsewhere := filepath.Join(t.TempDir(), "devinfo", "x")
	if err := wanting(false).prepareDevice(&agentapi.Delegate{}, elsewhere); err != nil || exists(filepath.Dir(elsewhere)) {
		t.Errorf("a folder was made for plugins that take no file: %v", err)
	}
	c := &call{devices: deviceDir}
	one, other := c.deviceFile(&agentapi.Sandbox{ContainerID: "c1"}, &agentapi.Delegate{Name: "net1"}), c.deviceFile(&agentapi.Sandbox{ContainerID: "c1"}, &agentapi.Delegate{Name: "net2"})
	if one == other || filepath.Dir(one) != "/var/run/k8s.cni.cncf.io/devinfo/cni" {
		t.Errorf("%s and %s", one, other)
	}
}
