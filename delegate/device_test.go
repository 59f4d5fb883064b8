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
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

func wanting(device bool) *conflist {
	return &conflist{stubs: &libcni.NetworkConfigList{Plugins: []*libcni.PluginConfig{
		{Network: &types.PluginConf{}}, {Network: &types.PluginConf{Capabilities: map[string]bool{deviceinfo.Capability: device}}},
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
		{"too large", func(t *testing.T, path string) { put(t, path, `"`+strings.Repeat("x", 64<<10)+`"`) }, "", "device information: PATH has more than 65536 bytes"},
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
		if err := deviceinfo.Delete(path); err != nil {
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
	r := &Runner{deviceDir: deviceinfo.CNIDir}
	one, other := r.deviceFile(&agentapi.Sandbox{ContainerID: "c1"}, &agentapi.Delegate{Name: "net1"}), r.deviceFile(&agentapi.Sandbox{ContainerID: "c1"}, &agentapi.Delegate{Name: "net2"})
	if one == other || filepath.Dir(one) != "/var/run/k8s.cni.cncf.io/devinfo/cni" {
		t.Errorf("%s and %s", one, other)
	}
}

const said = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5"}}`

// informed is a delegate whose device plugin says something of its device.
func informed(info string) *agentapi.Delegate {
	d := &agentapi.Delegate{Name: "net1", Device: &agentapi.Device{Resource: "a.example/vf", ID: "0000:18:02.5"}}
	if info != "" {
		d.Device.Info = []byte(info)
	}
	return d
}

// What the device plugin said is in the file before the first plugin is called, whatever was there before, and
// whether or not a plugin takes the file: the status has it from there.
// Conformance: D-4 D-5
func TestPrepareDevice(t *testing.T) {
	put := func(t *testing.T, path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			put(t, filepath.Join(filepath.Dir(path), "other"), "another's")
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name   string
		takes  bool // a plugin takes the file
		device *agentapi.Delegate
		before func(t *testing.T, path string)
		want   string // "": there is no file
	}{
		{"said", false, informed(said), func(*testing.T, string) {}, said},
		{"said, and a plugin takes it", true, informed(said), func(*testing.T, string) {}, said},
		{"said, in the place of a shorter one", false, informed(said), func(t *testing.T, path string) { put(t, path, "{}") }, said},
		{"said, in the place of a longer one", false, informed(said), func(t *testing.T, path string) { put(t, path, said+said) }, said},
		{"said, in the place of a link", false, informed(said), link("other"), said},
		{"said, in the place of a link to nothing", false, informed(said), link("nowhere"), said},
		{"nothing said, and a plugin takes it", true, informed(""), func(t *testing.T, path string) { put(t, path, said) }, ""},
		{"nothing said, in the place of a link", true, informed(""), link("other"), ""},
		{"no device, and a plugin takes it", true, &agentapi.Delegate{}, func(t *testing.T, path string) { put(t, path, said) }, ""},
		{"another's file", false, informed(""), func(t *testing.T, path string) { put(t, path, said) }, said},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "devinfo", "cni", "c1-net1-device.json")
			tt.before(t, path)
			if err := wanting(tt.takes).prepareDevice(tt.device, path); err != nil {
				t.Fatal(err)
			}
			if tt.want == "" {
				if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a file is there: %v", err)
				}
			} else if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
				t.Errorf("no plain file: %v, %v", info, err)
			} else if text, err := os.ReadFile(path); err != nil || string(text) != tt.want {
				t.Errorf("got %s, %v; want %s", text, err, tt.want)
			}
			// What a link led to is as it was.
			other := filepath.Join(filepath.Dir(path), "other")
			if text, err := os.ReadFile(other); err == nil && string(text) != "another's" {
				t.Errorf("another file became %s", text)
			}
			if exists(filepath.Join(filepath.Dir(path), "nowhere")) {
				t.Error("a link was followed")
			}
		})
	}
}

// Whatever runs in the pod's name may read the file; a folder in its place is an error of the network's.
// Conformance: D-5
func TestPrepareDeviceFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022)) // runtimes', and not the tester's
	path := filepath.Join(t.TempDir(), "devinfo", "cni", "c1-net1-device.json")
	if err := wanting(false).prepareDevice(informed(said), path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o444 != 0o444 || info.Mode().Perm()&0o022 != 0 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	err := wanting(false).prepareDevice(informed(said), path)
	if want := "device information: remove " + path + ": directory not empty"; err == nil || err.Error() != want || !conf.HasCode(err, conf.CodeDelegateFailed) {
		t.Errorf("got %v, want %s", err, want)
	}
}
