package plugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

const (
	said  = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5"}}`
	wrote = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","vhost-net":"/dev/vhost-net"}}`
)

// devices has the node's device information in a folder of the test's.
func (n *node) devices() string {
	n.t.Helper()
	n.call.deviceDir = filepath.Join(n.dir, "devinfo", "cni")
	return n.call.deviceDir
}

// withDevice is an attachment to alpha and beta, of which the first has a device that something is said of.
func (n *node) withDevice(capabilities string) *journal.Entry {
	n.t.Helper()
	e := n.attachments("c1", of(`{"type":"alpha"`+capabilities+`}`, ""), of(`{"type":"beta"}`, ""))
	e.Plan.Delegates[0].Device = informed(said).Device
	return e
}

func (n *node) wantDevices(what string, want ...string) {
	n.t.Helper()
	if got := files(n.t, n.call.deviceDir); !slices.Equal(got, want) {
		n.t.Errorf("%s: files %q, want %q", what, got, want)
	}
}

// A device's information lasts as long as its attachment: from before the first plugin's ADD until after the last
// one's DEL, over a DEL that fails, and goes into the status.
// Conformance: D-6 D-7
func TestDeviceFileOfAnAttachment(t *testing.T) {
	n := newNode(t)
	dir := n.devices()
	path := filepath.Join(dir, "c1-net1-device.json")
	recorder := n.read("bin/alpha")
	look := strings.Replace(recorder, "cat >", "cat '"+path+"' > \"$call.device\"\ncat >", 1)
	n.must(os.WriteFile(filepath.Join(n.bin, "alpha"), []byte(look), 0o755))
	e := n.withDevice("")
	n.must(n.call.runner().Add(t.Context(), e))
	n.must(n.call.journal.Write(e))
	n.wantDevices("ADD", "c1-net1-device.json")
	if got := []string{string(e.Devices[0]), string(e.Devices[1])}; !slices.Equal(got, []string{said, ""}) {
		t.Errorf("for the status: %q", got)
	}
	n.fails("DEL", "alpha")
	wantError(t, n.call.del(e.Sandbox, delTimeout), 119, "alpha cannot DEL")
	n.wantDevices("a DEL that fails", "c1-net1-device.json")
	for call, name := range map[string]string{"ADD alpha net1": "ADD", "DEL alpha net1": "DEL"} {
		if got := n.read(call + ".device"); got != said {
			t.Errorf("at %s there was %s, want %s", name, got, said)
		}
	}
	n.must(os.Remove(filepath.Join(n.dir, "fail DEL alpha")))
	n.must(n.call.del(e.Sandbox, delTimeout))
	n.wantDevices("DEL")
	n.wantState("DEL")
}

// What a plugin makes of the file is what goes into the status; it is told the path if it has the capability.
// Conformance: D-7 D-8
func TestDeviceFileThatAPluginWrites(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.devices(), "c1-net1-device.json")
	write := strings.Replace(n.read("bin/alpha"), "cat >", "[ $CNI_COMMAND = ADD ] && printf %s '"+wrote+"' > '"+path+"'\ncat >", 1)
	n.must(os.WriteFile(filepath.Join(n.bin, "alpha"), []byte(write), 0o755))
	e := n.withDevice(`,"capabilities":{"CNIDeviceInfoFile":true}`)
	n.must(n.call.runner().Add(t.Context(), e))
	if got := string(e.Devices[0]); got != wrote {
		t.Errorf("for the status: %s, want %s", got, wrote)
	}
	if got, want := n.read("ADD alpha net1.stdin"), `"runtimeConfig":{"CNIDeviceInfoFile":"`+path+`"}`; !strings.Contains(got, want) {
		t.Errorf("alpha was given %s, not %s", got, want)
	}
	n.must(n.call.journal.Write(e))
	n.must(n.call.del(e.Sandbox, delTimeout))
	n.wantDevices("DEL")
}

// A file that a plugin spoils is an ADD that fails, and is undone.
func TestDeviceFileThatAPluginSpoils(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.devices(), "c1-net1-device.json")
	spoil := strings.Replace(n.read("bin/alpha"), "cat >", "[ $CNI_COMMAND = ADD ] && rm '"+path+"' && ln -s /etc/passwd '"+path+"'\ncat >", 1)
	n.must(os.WriteFile(filepath.Join(n.bin, "alpha"), []byte(spoil), 0o755))
	e := n.withDevice("")
	err := n.call.runner().Add(t.Context(), e)
	wantError(t, err, conf.CodeDelegateFailed, "interface net1: network shop/ext: device information: open "+path+": too many levels of symbolic links")
	n.must(n.call.undo(e))
	n.wantCalled("ADD", "ADD alpha net1", "DEL alpha net1")
	n.wantDevices("the undone ADD")
}

// Delegates that were given up leave no information of a device that is another's by now.
func TestDeviceFileOfTheForgotten(t *testing.T) {
	n := newNode(t)
	n.devices()
	e := n.withDevice("")
	n.must(n.call.runner().Add(t.Context(), e))
	n.must(n.call.journal.Write(e))
	n.fails("DEL", "alpha")
	wantError(t, n.call.del(e.Sandbox, delTimeout), 119, "alpha cannot DEL")
	n.mark("c1")
	n.called()
	n.must(n.call.del(e.Sandbox, delTimeout))
	n.wantCalled("DEL")
	n.wantDevices("DEL")
	n.wantState("DEL")
}

// Of an entry that is damaged nobody can report whether it had a device: the file goes, and the plugins are told at
// DEL what they were told at ADD, as libcni has it.
func TestDeviceFileOfADamagedEntry(t *testing.T) {
	n := newNode(t)
	n.devices()
	e := n.withDevice("")
	n.must(n.call.runner().Add(t.Context(), e))
	n.must(os.WriteFile(n.call.journal.Entry(&e.Sandbox), []byte(`{"version":1,"sand`), 0o600))
	n.called()
	n.must(n.call.del(e.Sandbox, delTimeout))
	n.wantDevices("DEL")
	if got := n.called(); !slices.Contains(got, "DEL alpha net1") || !slices.Contains(got, "DEL beta net2") || len(got) != 2 {
		t.Errorf("called %q", got)
	}
	for _, call := range []string{"alpha net1", "beta net2"} {
		const want = "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;IP=192.0.2.9\n"
		for _, command := range []string{"ADD ", "DEL "} {
			if got := n.read(command + call + ".env"); !strings.Contains(got, want) {
				t.Errorf("%s%s was not given %s: %s", command, call, want, got)
			}
		}
	}
}

// informed is a delegate whose device plugin wrote information.
func informed(info string) *agentapi.Delegate {
	return &agentapi.Delegate{Name: "net1", Device: &agentapi.Device{Resource: "a.example/vf", ID: "0000:18:02.5", Info: []byte(info)}}
}
