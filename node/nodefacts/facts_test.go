package nodefacts

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

const flannel = `{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"},{"type":"portmap"}]}`

// tree makes a node's root folder: files by their paths; a text that begins with "-> " is a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCNI(t *testing.T) {
	plugins := map[string]string{"/opt/cni/bin/flannel": "", "/opt/cni/bin/bridge": "", "/opt/cni/bin/host-local": "", "/opt/cni/bin/portmap": ""}
	tests := []struct {
		name    string
		files   map[string]string // beside the plugins
		without string            // a plugin
		primary string
		want    CNI // without the folders
	}{
		{name: "Flannel", files: map[string]string{"/etc/cni/net.d/10-flannel.conflist": flannel}, want: CNI{
			Files: []string{"10-flannel.conflist"}, Primary: "10-flannel.conflist", CNIVersion: "0.3.1",
			Programs: []string{"bridge", "flannel", "host-local", "portmap"},
		}},
		{
			name: "a plugin of a plugin is missing", files: map[string]string{"/etc/cni/net.d/10-flannel.conflist": flannel},
			without: "/opt/cni/bin/bridge", want: CNI{
				Files: []string{"10-flannel.conflist"}, Primary: "10-flannel.conflist", CNIVersion: "0.3.1",
				Programs: []string{"bridge", "flannel", "host-local", "portmap"}, Missing: []string{"bridge"},
			},
		},
		{name: "Multus comes first", files: map[string]string{
			"/etc/cni/net.d/00-multus.conf": `{"type":"multus","cniVersion":"0.3.1"}`, "/etc/cni/net.d/10-flannel.conflist": flannel,
		}, want: CNI{
			Files: []string{"00-multus.conf", "10-flannel.conflist"}, Primary: "00-multus.conf", CNIVersion: "0.3.1",
			Programs: []string{"multus"}, Missing: []string{"multus"},
		}},
		{name: "the operator names the file", primary: "10-flannel.conflist", files: map[string]string{
			"/etc/cni/net.d/00-other.conf": `{"type":"other"}`, "/etc/cni/net.d/10-flannel.conflist": flannel,
			"/etc/cni/net.d/05-ovn-multinet.conflist": `{"plugins":[{"type":"ovn-multinet"}]}`,
		}, want: CNI{
			Files:   []string{"00-other.conf", "05-ovn-multinet.conflist", "10-flannel.conflist"},
			Primary: "10-flannel.conflist", CNIVersion: "0.3.1", Programs: []string{"bridge", "flannel", "host-local", "portmap"},
		}},
		{name: "no file", files: map[string]string{"/etc/cni/net.d/readme": ""}, want: CNI{
			Files: []string{}, Error: "/etc/cni/net.d: there is no CNI configuration of a primary network yet",
		}},
		{name: "not JSON", files: map[string]string{"/etc/cni/net.d/10-x.conflist": "{"}, want: CNI{
			Files: []string{"10-x.conflist"}, Error: "/etc/cni/net.d: there is no CNI configuration of a primary network yet",
		}},
		{name: "no folder", want: CNI{Files: []string{}, Error: "there is no folder /etc/cni/net.d"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			for _, more := range []map[string]string{plugins, tt.files} {
				for name, text := range more {
					files[name] = text
				}
			}
			delete(files, tt.without)
			got := Read(t.Context(), Config{
				Root: tree(t, files), Proc: "/proc", NetDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", Primary: tt.primary,
			}).CNI
			if got.BinDir.State == Absent || (got.NetDir.State == Absent) != (tt.files == nil) {
				t.Errorf("folders %+v, %+v", got.NetDir, got.BinDir)
			}
			got.NetDir, got.BinDir = Folder{}, Folder{}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// MicroK8s and k3s have links in the way, some with absolute targets: these are the node's, not the pod's.
func TestLinksAreTheNodes(t *testing.T) {
	dir := tree(t, map[string]string{
		"/snap/7/bin/flannel": "x", "/snap/current": "-> 7", "/opt/bin": "-> /snap/current/bin", "/up/down": "-> ../opt/bin/./flannel",
		"/etc/loop": "-> loop", "/out": "-> ../../../../../../etc/hostname",
	})
	for name, want := range map[string]string{
		"/opt/bin/flannel": "/snap/7/bin/flannel", "/up/down": "/snap/7/bin/flannel", "/": "/", "/snap/..": "/",
		"/etc/loop": "too many links", "/opt/bin/none": "no such file", "/out": "no such file",
	} {
		here, there, err := root(dir).path(name)
		if err != nil {
			there = err.Error()
		} else if here != filepath.Join(dir, there) {
			t.Errorf("%s is here %s and there %s", name, here, there)
		}
		if there != want && !(err != nil && strings.Contains(there, want)) {
			t.Errorf("%s: %s, want %s", name, there, want)
		}
	}
}

func TestModules(t *testing.T) {
	dep := "kernel/net/openvswitch/vport-geneve.ko: kernel/net/openvswitch/openvswitch.ko\n"
	for _, tt := range []struct {
		name         string
		node, kernel map[string]string
		want         string // openvswitch, geneve
	}{
		{"no folder", nil, nil, "absent absent"},
		{"another kernel's", map[string]string{"/lib/modules/5.0/modules.dep": dep + "kernel/net/openvswitch/openvswitch.ko:\n"}, nil, "absent absent"},
		{"listed", map[string]string{"/lib/modules/6.1/modules.dep": dep + "kernel/net/openvswitch/openvswitch.ko.xz: kernel/x.ko\n"}, nil,
			"loadable absent"},
		{"only in another's dependencies", map[string]string{"/lib/modules/6.1/modules.dep": dep}, nil, "absent absent"},
		{"built in", map[string]string{"/lib/modules/6.1/modules.builtin": "kernel/drivers/net/geneve.ko\n"}, nil, "absent built in"},
		{"loaded", nil, map[string]string{"/modules": "openvswitch 200704 1 vport_geneve, Live 0x0\ngeneve 45056 1 - Live 0x0\n"}, "loaded loaded"},
		{"usr merge", map[string]string{"/lib": "-> /usr/lib", "/usr/lib/modules/6.1/modules.dep": "kernel/drivers/net/geneve.ko.zst:\n"}, nil,
			"absent loadable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			states := modules(root(tree(t, tt.node)), procfs(tree(t, tt.kernel)), "6.1")
			if got := states["openvswitch"] + " " + states["geneve"]; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestPorts opens real sockets.
func TestPorts(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server := Port{"tcp", tcp.Addr().(*net.TCPAddr).Port}
	bound := Port{"udp", udp.LocalAddr().(*net.UDPAddr).Port}
	connected := Port{"tcp", client.LocalAddr().(*net.TCPAddr).Port}
	all := []Port{server, bound, connected, {"udp", server.Number}}
	if got := procfs("/proc").used(all); !slices.Equal(got, []Port{server, bound}) {
		t.Errorf("in use are %v, want %v and %v", got, server, bound)
	}
	for _, socket := range []interface{ Close() error }{client, tcp, udp} {
		if err := socket.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := procfs("/proc").used(all); len(got) > 0 {
		t.Errorf("closed and in use: %v", got)
	}
}

func TestProcesses(t *testing.T) {
	own, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(own))
	if got := procfs("/proc").running([]string{name, "not-a-process"}); !slices.Equal(got, []string{name}) {
		t.Errorf("running: %q, want %q", got, name)
	}
}

func TestMounts(t *testing.T) {
	proc := procfs(tree(t, map[string]string{"/1/mountinfo": `24 30 0:22 / / ro,relatime shared:1 - overlay overlay rw
31 24 8:1 / /opt rw,noatime - ext4 /dev/sda1 rw
32 31 8:2 / /opt/cni rw - squashfs /dev/loop0 ro,errors=continue
33 24 8:3 / /with\040blank rw - ext4 /dev/sdb rw
34 33 8:3 / /opt/cni/bin rw - tmpfs tmpfs rw
`}))
	for path, want := range map[string]string{
		"/etc/cni/net.d": ReadOnly, "/opt": Writable, "/opt/x": Writable, "/opt/cni": ReadOnly, "/opt/cni/net.d": ReadOnly,
		"/opt/cni/bin": Writable, "/option": ReadOnly, "/with blank/x": Writable,
	} {
		if got := proc.mountState(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if got := procfs(t.TempDir()).mountState("/"); got != Unknown {
		t.Errorf("without mountinfo: %s", got)
	}
	if got := procfs("/proc").mountState("/"); got == Unknown {
		t.Errorf("this machine's root folder is %s", got)
	}
}

// TestOVS asks a real ovsdb-server.
func TestOVS(t *testing.T) {
	s := ovndbtest.StartOVS(t)
	s.VSCtl("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev", "--", "add-br", "br-ex", "--",
		"set", "Open_vSwitch", ".", "ovs_version=3.1.0", "datapath_types=[netdev,system]", "external_ids:system-id=chassis-1",
		"external_ids:ovn-remote=tcp:192.0.2.1:6642", "external_ids:hostname=worker-1")
	want := OVS{
		Socket: "/db.sock", Version: "3.1.0", Datapaths: []string{"netdev", "system"}, SystemID: "chassis-1",
		OVN:     map[string]string{"ovn-remote": "tcp:192.0.2.1:6642"},
		Bridges: []string{"br-ex", "br-int"}, Userspace: []string{"br-int"},
	}
	node := root(tree(t, map[string]string{"/run/x": ""}))
	if err := os.Link(s.Socket, filepath.Join(string(node), "db.sock")); err != nil {
		t.Fatal(err)
	}
	if got := readOVS(t.Context(), node, "/db.sock"); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := readOVS(t.Context(), node, "/run/none.sock"); !strings.Contains(got.Error, " /run/none.sock: no such file") {
		t.Errorf("without a socket: %+v", got)
	}
	nb := ovndbtest.StartNB(t)
	if got := readOVS(t.Context(), "/", nb.Socket); got.Error == "" {
		t.Errorf("NB for OVS: %+v", got)
	}
	s.Kill()
	if got := readOVS(t.Context(), node, "/db.sock"); !strings.Contains(got.Error, "connection refused") {
		t.Errorf("without a server: %+v", got)
	}
}

func TestReach(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	open := "ssl:" + server.Addr().String()
	got := reach(t.Context(), []string{open, "tcp:127.0.0.1:1"})
	if got[0] != (Endpoint{Endpoint: open}) || !strings.Contains(got[1].Error, "connection refused") {
		t.Errorf("%+v", got)
	}
}

// TestFactsAreOneLine: the command reads the facts from the log of a pod.
func TestFactsAreOneLine(t *testing.T) {
	f := Read(context.Background(), Config{Root: t.TempDir(), Proc: "/proc", NetDir: "/a\nb", BinDir: "/b", OVSSocket: "/c"})
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back Facts
	if err := json.Unmarshal(text, &back); err != nil || strings.Contains(string(text), "\n") {
		t.Errorf("%v: %s", err, text)
	}
	if again, err := json.Marshal(back); err != nil || string(again) != string(text) {
		t.Errorf("%v: %s\nis read as %s", err, text, again)
	}
	if f.Kernel == "" || f.Inotify.Instances == 0 || f.Inotify.Watches == 0 || f.Version == "" {
		t.Errorf("facts %+v", f)
	}
}
