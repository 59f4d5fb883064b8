package deviceinfo

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// ofPCI is what a device plugin says of a PCI device.
func ofPCI(address string) string {
	return `{"type":"pci","version":"1.1.0","pci":{"pci-address":"` + address + `"}}`
}

// put makes a file of a folder, and the folders that it is in.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

type device struct{ resource, id string }

const (
	vf      = "a.example/vf"
	pciID   = "0000:18:02.5"
	pciFile = "a.example-vf-0000:18:02.5-device.json"
)

// Where device plugins write it is the specification's choice (Device Information Specification 1.1.0, section 4.1).
func TestDirs(t *testing.T) {
	if DevicePluginDir != "/var/run/k8s.cni.cncf.io/devinfo/dp" || CNIDir != "/var/run/k8s.cni.cncf.io/devinfo/cni" {
		t.Errorf("folders %s and %s", DevicePluginDir, CNIDir)
	}
}

// Conformance: D-2
func TestOfDevice(t *testing.T) {
	odd := `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa3","driver":"vhost","path":"/dev/vhost-vdpa0"},"org.foo":12345678901234567890}`
	tests := []struct {
		name       string
		device     device
		file, text string // relative to the folder
		want       string
	}{
		{"of a PCI device", device{vf, pciID}, pciFile, ofPCI(pciID), ofPCI(pciID)},
		{"as it is written", device{vf, pciID}, pciFile, " " + ofPCI(pciID) + "\n", " " + ofPCI(pciID) + "\n"},
		{"in capitals", device{vf, "0000:ab:02.5"}, "a.example-vf-0000:ab:02.5-device.json", ofPCI("0000:AB:02.5"), ofPCI("0000:AB:02.5")},
		{"of an ID in capitals", device{vf, "0000:AB:02.5"}, "a.example-vf-0000:AB:02.5-device.json", ofPCI("0000:ab:02.5"), ofPCI("0000:ab:02.5")},
		{"a device in another form", device{vf, pciID}, pciFile, odd, odd},
		{"of an ID that is no address", device{vf, "vf-7"}, "a.example-vf-vf-7-device.json", ofPCI(pciID), ofPCI(pciID)},
		{"of an ID of dots", device{vf, ".."}, "a.example-vf-..-device.json", odd, odd},
		{"of a resource without a domain", device{"vf", pciID}, "vf-0000:18:02.5-device.json", odd, odd},
		{"the largest", device{vf, pciID}, pciFile, ofPCI(pciID) + strings.Repeat(" ", maxFile-len(ofPCI(pciID))), ofPCI(pciID) + strings.Repeat(" ", maxFile-len(ofPCI(pciID)))},

		{"none", device{vf, pciID}, "", "", ""},
		{"another device's", device{vf, pciID}, "a.example-vf-0000:18:02.6-device.json", ofPCI(pciID), ""},
		{"another resource's", device{vf, pciID}, "a.example-vg-0000:18:02.5-device.json", ofPCI(pciID), ""},
		{"an ID in another case", device{vf, "0000:AB:02.5"}, "a.example-vf-0000:ab:02.5-device.json", ofPCI("0000:ab:02.5"), ""},
		{"an ID that leads elsewhere", device{vf, "/../../secret"}, "../secret-device.json", odd, ""},
		{"an ID that leads into a folder", device{vf, "x/y"}, "a.example-vf-x/y-device.json", odd, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dp")
			if tt.file != "" {
				put(t, dir, "a.example-vf-/x", "") // a folder that an ID could lead through
				put(t, dir, tt.file, tt.text)
			}
			got, err := OfDevice(dir, tt.device.resource, tt.device.id)
			if err != nil || string(got) != tt.want || (got == nil) != (tt.want == "") {
				t.Errorf("got %.200s, %v; want %.200s", got, err, tt.want)
			}
		})
	}
}

// The folder is everybody's who writes such files: what is in it is not trusted. FILE stands for the file.
// Conformance: D-2
func TestInvalidFilesOfDevices(t *testing.T) {
	text := func(s string) func(*testing.T, string) {
		return func(t *testing.T, path string) { put(t, filepath.Dir(path), filepath.Base(path), s) }
	}
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"empty", text(""), "it is not a JSON object"},
		{"half", text(`{"type":"pci"`), "it is not a JSON object"},
		{"two of them", text(ofPCI(pciID) + ofPCI(pciID)), "it is not a JSON object"},
		{"too large", text(ofPCI(pciID) + strings.Repeat(" ", maxFile)), "FILE has more than 65536 bytes"},
		{"not of the specification", text(`{"type":"pci","version":"1.1.0"}`), `"pci" is not there as an object`},
		{"of another PCI device", text(ofPCI("0000:18:02.6")), "it is of PCI device 0000:18:02.6"},
		{"of another PCI device, the type twice", text(`{"type":"pci","Type":"vdpa","version":"1.1.0","pci":{"pci-address":"0000:18:02.6"}}`), "it is of PCI device 0000:18:02.6"},
		{"of another PCI device, the address twice", text(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.6","PCI-Address":"0000:18:02.5"}}`), "it is of PCI device 0000:18:02.6"},
		{"of another PCI device, its map twice", text(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.6"},"PCI":{"pci-address":"0000:18:02.5"}}`), "it is of PCI device 0000:18:02.6"},
		{"a link to a good one", func(t *testing.T, path string) {
			text(ofPCI(pciID))(t, path+".good")
			if err := os.Symlink(path+".good", path); err != nil {
				t.Fatal(err)
			}
		}, "open FILE: too many levels of symbolic links"},
		{"a folder", func(t *testing.T, path string) {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "FILE is no plain file"},
		{"a pipe that nobody writes to", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "FILE is no plain file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, pciFile)
			tt.make(t, path)
			got, err := OfDevice(dir, vf, pciID)
			if got != nil {
				t.Errorf("got %.200s", got)
			}
			if err == nil {
				t.Fatal("no error")
			}
			want := "what the device plugin says of device " + pciID + ": " + strings.ReplaceAll(tt.want, "FILE", path)
			code, msg, details := conf.Describe(err)
			if code != conf.CodeDecoding || msg != want || details != "the device plugin wrote it into "+dir {
				t.Errorf("got %d %s (%s), want %s", code, msg, details, want)
			}
		})
	}
}

// Device information is other programs' text: whatever it is, it is handed on as it is, or refused with a code.
func FuzzOfDevice(f *testing.F) {
	for _, text := range []string{ofPCI(pciID), ofPCI("0000:18:02.6"), `{"type":"pci"}`, "null", `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"x","driver":"vhost","path":"/x"}}`} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		put(t, dir, pciFile, string(text))
		got, err := OfDevice(dir, vf, pciID)
		if (got == nil) == (err == nil) || err == nil && string(got) != string(text) {
			t.Errorf("%q is handed on as %q, %v", text, got, err)
		}
		if err != nil && !conf.HasCode(err, conf.CodeDecoding) {
			t.Errorf("%v has another code", err)
		}
	})
}
