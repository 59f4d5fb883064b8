package conf

import (
	"fmt"
	"testing"
	"time"
)

func TestValidateAgent(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Agent)
		want   string
	}{
		{"as it should be", func(*Agent) {}, ""},
		{"from a folder", func(a *Agent) { a.Manifests = "manifests" }, ""},
		{"from a cluster", func(a *Agent) { a.Kubeconfig = "/etc/kube" }, ""},
		{"several endpoints", func(a *Agent) { a.NB.Endpoints = []string{"tcp:a:1", "unix:/x", "tcp:[::1]:6641"} }, ""},
		{"TLS", func(a *Agent) { a.NB = NB{[]string{"ssl:a:1"}, "", "c", "k", "ca", nil} }, ""},
		{"no node", func(a *Agent) { a.NodeName = "" }, "--node-name is empty: give the name of this node as the pods' spec.nodeName has it"},
		{"socket", func(a *Agent) { a.Socket = "agent.sock" }, `--socket: "agent.sock" is not an absolute path`},
		{"socket with a scheme", func(a *Agent) { a.OVSSocket = "unix:/run/db.sock" }, `--ovs-socket: "unix:/run/db.sock" is not an absolute path`},
		{"several paths: the first", func(a *Agent) { a.OVSSocket, a.Socket, a.StateDir = "", "", "" }, `--socket: "" is not an absolute path`},
		{"state", func(a *Agent) { a.StateDir = "" }, `--state-dir: "" is not an absolute path`},
		{"kubelet's socket", func(a *Agent) { a.PodResources = "unix:///run/kubelet.sock" }, `--pod-resources-socket: "unix:///run/kubelet.sock" is not an absolute path`},
		{"a folder of configurations", func(a *Agent) { a.NADConfDir = "/etc/cni/multinet.d" }, ""},
		{"a folder of configurations that is none", func(a *Agent) { a.NADConfDir = "multinet.d" }, `--nad-conf-dir: "multinet.d" is not an absolute path`},
		{"isolation", func(a *Agent) { a.Isolated = true }, ""},
		{"isolation with exceptions", func(a *Agent) { a.Isolated, a.Global = true, []string{"default"} }, ""},
		{"exceptions alone", func(a *Agent) { a.Global = []string{"default"} }, "--global-namespaces is for --namespace-isolation: without that, every namespace is global"},
		{"no bridge", func(a *Agent) { a.Bridge = "" }, "--bridge is empty: it is OVN's integration bridge, br-int as a rule"},
		{"no period", func(a *Agent) { a.ReconcilePeriod = 0 }, "--reconcile-period: 0s is no period, give a time like 1m"},
		{"two sources", func(a *Agent) { a.Kubeconfig, a.Manifests = "/k", "/m" }, "--kubeconfig and --manifests are two sources of pods and networks: give one"},
		{"level", func(a *Agent) { a.LogLevel = "trace" }, `--log-level: "trace" is none of debug, info, warn, error`},
		{"no endpoint", func(a *Agent) { a.NB.Endpoints = nil }, "--nb-endpoints is empty: give OVN's Northbound database, like tcp:192.0.2.1:6641"},
		{"endpoint without a scheme", func(a *Agent) { a.NB.Endpoints = []string{"192.0.2.1:6641"} },
			`--nb-endpoints: "192.0.2.1:6641" is not like tcp:192.0.2.1:6641, ssl:192.0.2.1:6641 or unix:/run/ovn/ovnnb_db.sock`},
		{"endpoint without an address", func(a *Agent) { a.NB.Endpoints = []string{"tcp:a:1", "ssl:"} },
			`--nb-endpoints: "ssl:" is not like tcp:192.0.2.1:6641, ssl:192.0.2.1:6641 or unix:/run/ovn/ovnnb_db.sock`},
		{"TLS without files", func(a *Agent) { a.NB.Endpoints = []string{"tcp:a:1", "ssl:b:1", "tcp:c:1"} },
			"--nb-members and ssl: in --nb-endpoints take --nb-certificate, --nb-private-key and --nb-ca-cert"},
		{"TLS without the authority", func(a *Agent) { a.NB = NB{[]string{"ssl:a:1"}, "", "c", "k", "", nil} },
			"--nb-members and ssl: in --nb-endpoints take --nb-certificate, --nb-private-key and --nb-ca-cert"},
		{"files without TLS", func(a *Agent) { a.NB = NB{[]string{"tcp:a:1"}, "", "c", "k", "ca", nil} },
			"--nb-certificate, --nb-private-key and --nb-ca-cert are for ssl: endpoints, --nb-endpoints has none"},
		{"a server's name", func(a *Agent) { a.NB = NB{[]string{"ssl:a:1"}, "", "c", "k", "ca", []string{"nb", "nb2"}} }, ""},
		{"a server's name without TLS", func(a *Agent) { a.NB.ServerNames = []string{"nb"} },
			"--nb-server-name is for ssl: endpoints, --nb-endpoints has none"},
		{"an empty server's name", func(a *Agent) { a.NB = NB{[]string{"ssl:a:1"}, "", "c", "k", "ca", []string{"nb", ""}} },
			"--nb-server-name has an empty name: give a name in the server's certificate, or omit the flag"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := Agent{NodeName: "node-1", Socket: "/run/agent.sock", StateDir: "/var/lib/x", OVSSocket: "/run/db.sock", PodResources: DefaultPodResources,
				Bridge: "br-int", LogLevel: "info", ReconcilePeriod: time.Minute, NB: NB{Endpoints: []string{"tcp:192.0.2.1:6641"}}}
			tt.change(&a)
			wantText(t, a.Validate(), tt.want)
		})
	}
}

func TestKeepOnPrimary(t *testing.T) {
	tests := []struct {
		name     string
		networks []string
		keeps    string
		want     string
	}{
		{"none", nil, "[]", ""},
		{"both families, in their order", []string{"10.244.0.0/16", " fd00::/8", "10.96.0.0/12 "}, "[10.244.0.0/16 fd00::/8 10.96.0.0/12]", ""},
		{"one address", []string{"192.0.2.1/32"}, "[192.0.2.1/32]", ""},
		{"words", []string{"pods"}, "", `--keep-on-primary: "pods" is not a network like 10.1.0.0/16`},
		{"empty", []string{""}, "", `--keep-on-primary: "" is not a network like 10.1.0.0/16`},
		{"without a length", []string{"10.96.0.0/12", "192.0.2.1"}, "", `--keep-on-primary: "192.0.2.1" is not a network like 10.1.0.0/16`},
		{"with host bits", []string{"10.96.0.1/12"}, "", "--keep-on-primary: 10.96.0.1/12 has host bits set, did you mean 10.96.0.0/12?"},
		{"IPv4 in IPv6", []string{"::ffff:10.0.0.0/104"}, "", "--keep-on-primary: ::ffff:10.0.0.0/104 is IPv4 in IPv6 notation, write it as IPv4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := ParseKeepOnPrimary(tt.networks)
			wantText(t, err, tt.want)
			if got := fmt.Sprint(all); tt.want == "" && got != tt.keeps {
				t.Errorf("got %s, want %s", got, tt.keeps)
			}
		})
	}
}

func TestValidateController(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Controller)
		want   string
	}{
		{"as it should be", func(*Controller) {}, ""},
		{"two sources", func(c *Controller) { c.Kubeconfig, c.Manifests = "/k", "/m" }, "--kubeconfig and --manifests are two sources of pods and networks: give one"},
		{"no orphan period", func(c *Controller) { c.OrphanPeriod = 0 }, "--orphan-period: 0s is no period, give a time like 1m"},
		{"an orphan period that has passed", func(c *Controller) { c.OrphanPeriod = -time.Second }, "--orphan-period: -1s is no period, give a time like 1m"},
		{"the shortest orphan period", func(c *Controller) { c.OrphanPeriod = 1 }, ""},
		{"startup taint", func(c *Controller) { c.StartupTaint = true }, ""},
		{"startup taint of a folder", func(c *Controller) { c.StartupTaint, c.Manifests = true, "/manifests" },
			"--startup-taint is for the nodes of Kubernetes: a folder of --manifests has none to taint"},
		{"no packets are logged", func(c *Controller) { c.DeniedRate = 0 }, ""},
		{"packets without end", func(c *Controller) { c.DeniedRate = 1001 }, "--denied-log-rate: 1001 is not from 0 to 1000 packets per second"},
		{"less than no Services", func(c *Controller) { c.MaxServices = -1 }, "--services-per-namespace: -1 is less than 0, which means none"},
		{"less than no packets", func(c *Controller) { c.DeniedRate = -1 }, "--denied-log-rate: -1 is not from 0 to 1000 packets per second"},
		{"the widest subnet", func(c *Controller) { c.WidestIPAM = 1 }, ""},
		{"wider than all addresses", func(c *Controller) { c.WidestIPAM = 0 }, "--widest-ipam-subnet: 0 is no prefix length of an IPv4 subnet, give one from 1 to 30"},
		{"the narrowest subnet", func(c *Controller) { c.WidestIPAM = 30 }, ""},
		{"narrower than a subnet", func(c *Controller) { c.WidestIPAM = 31 }, "--widest-ipam-subnet: 31 is no prefix length of an IPv4 subnet, give one from 1 to 30"},
		{"level", func(c *Controller) { c.LogLevel = "" }, `--log-level: "" is none of debug, info, warn, error`},
		{"no endpoint", func(c *Controller) { c.NB.Endpoints = nil }, "--nb-endpoints is empty: give OVN's Northbound database, like tcp:192.0.2.1:6641"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Controller{LogLevel: "debug", OrphanPeriod: time.Minute, WidestIPAM: DefaultWidestIPAM, NB: NB{Endpoints: []string{"unix:/run/nb.sock"}}}
			tt.change(&c)
			wantText(t, c.Validate(), tt.want)
		})
	}
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
