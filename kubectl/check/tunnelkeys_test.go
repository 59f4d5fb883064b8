package check

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestTunnelKeys: a chassis with VXLAN takes most tunnel keys from the whole cluster.
func TestTunnelKeys(t *testing.T) {
	for _, tt := range []struct {
		cluster *Cluster
		keys    int
		err     error
		want    string
	}{
		{installed(), 16711680, nil, "ok tunnel-keys: OVN has 16711680 for the cluster"},
		{installed(), 4095, nil, "error tunnel-keys: a chassis lists the encapsulation VXLAN: OVN has 4095 tunnel keys"},
		{installed(), 0, nil, ""},
		{installed(), 0, errors.New("away"), "warning tunnel-keys: no agent can read OVN's Northbound database: away"},
		{installed(), 0, apierrors.NewForbidden(schema.GroupResource{Resource: "pods/exec"}, "", nil), "error tunnel-keys: cannot be read: "},
		{good(), 4095, nil, ""},
	} {
		got := ""
		for _, f := range tt.cluster.CheckTunnelKeys(tt.keys, tt.err) {
			got += fmt.Sprintf("%s %s: %s", f.Level, f.What, f.Cause)
		}
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%d, %v: %q, want %q", tt.keys, tt.err, got, tt.want)
		}
	}
	own := installed()
	own.Config.Data["OVN_MULTINET_NB_MEMBERS"] = "/etc/ovn-multinet/ovn"
	for cluster, want := range map[*Cluster]string{own: "kubectl multinet sbctl -- ", installed(): "see which one: ovn-sbctl "} {
		if fix := cluster.CheckTunnelKeys(smallRange, nil)[0].Fix; !strings.Contains(fix, want) {
			t.Errorf("the next step is %q, want %q in it", fix, want)
		}
	}
}
