package conf

import (
	"strings"
	"testing"
	"time"
)

// An identity is a word that can stand in a row, in a file and in a flag.
func TestBoundaryClusterFlags(t *testing.T) {
	const no = " is no identity of a cluster: give a UUID, or up to 63 letters, digits, '_', '.' and '-'"
	for value, quoted := range map[string]string{
		"": "", "f3b1c9a2-6f4e-4f57-9f5c-0d8f4f7f9a11": "", "prod_1.eu": "", strings.Repeat("a", 63): "",
		strings.Repeat("a", 64): `"` + strings.Repeat("a", 64) + `"`, "a b": `"a b"`, "a\n": `"a\n"`, "-a": `"-a"`, "ä": `"ä"`, "a/b": `"a/b"`,
	} {
		want := func(flag string) string {
			if quoted == "" {
				return ""
			}
			return "--" + flag + ": " + quoted + no
		}
		c := Controller{LogLevel: "debug", OrphanPeriod: time.Minute, WidestIPAM: DefaultWidestIPAM, NB: NB{Endpoints: []string{"unix:/run/nb.sock"}}, ClusterID: value}
		wantText(t, c.Validate(), want("cluster-id"))
		c.ClusterID, c.AdoptCluster = "", value
		wantText(t, c.Validate(), want("adopt-cluster"))
		a := Agent{NodeName: "node-1", Socket: "/run/agent.sock", StateDir: "/var/lib/x", OVSSocket: "/run/db.sock", PodResources: DefaultPodResources,
			Bridge: "br-int", LogLevel: "info", ReconcilePeriod: time.Minute, NB: NB{Endpoints: []string{"tcp:192.0.2.1:6641"}}, ClusterID: value}
		wantText(t, a.Validate(), want("cluster-id"))
	}
}
