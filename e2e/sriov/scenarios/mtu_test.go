//go:build sriov

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

const mtuService = `apiVersion: v1
kind: Service
metadata:
  namespace: shop
  name: large
  labels: {service.kubernetes.io/service-proxy-name: ovn-multinet}
  annotations:
    ovn-multinet/service-network: low
    ovn-multinet/service-selector: app=large
    ovn-multinet/service-address: 10.12.0.200,fd12::c801
spec: {clusterIP: None, ports: [{name: dns, protocol: UDP, port: 90, targetPort: 90}]}
`

// TestPathMTU: the kernel's datapath answers packets that do not fit into another network, in both families, whether their
// sender sets DF or not, also to the virtual address of a Service there. Fragments pass.
func TestPathMTU(t *testing.T) {
	w := newWorld(t)
	const routes = `"router":"sizes","routes":[{"dst":"10.11.0.0/16"},{"dst":"10.12.0.0/16"},{"dst":"fd11::/64"},{"dst":"fd12::/64"}]}`
	w.NAD("high", `{"type":"ovn-multinet","subnets":"10.11.0.0/24,fd11::/64",`+
		strings.NewReplacer(`{"dst":"10.11.0.0/16"},`, "", `{"dst":"fd11::/64"},`, "").Replace(routes))
	w.NAD("low", `{"type":"ovn-multinet","mtu":1400,"subnets":"10.12.0.0/24,fd12::/64",`+
		strings.NewReplacer(`{"dst":"10.12.0.0/16"},`, "", `,{"dst":"fd12::/64"}`, "").Replace(routes))
	sender, near, far := w.Pod(0, "sender", "high"), w.Pod(0, "near", "low"), w.Pod(1, "far", "low")
	far.Labels = map[string]string{"app": "large"}
	w.Must(far.WriteManifest())
	for _, p := range []*lab.Pod{sender, near, far} {
		w.AddInTheEnd(p)
	}
	w.Must(w.WriteManifest("service-large.yaml", mtuService))
	w.Eventually(func() error {
		text, err := os.ReadFile(filepath.Join(w.Manifests, "shop.large.service.json"))
		if err != nil {
			return err
		}
		var state struct {
			Service struct {
				Ready  bool
				Reason string
			}
		}
		if err = json.Unmarshal(text, &state); err == nil && !state.Service.Ready {
			err = errors.New(state.Service.Reason)
		}
		return err
	})
	w.Eventually(func() error {
		if out := w.NBCtl("--bare", "--columns=options", "find", "Logical_Router_Port", `name="shop/sizes:shop/low"`); !strings.Contains(out, "1400") {
			return fmt.Errorf("the router's port has %q", out)
		}
		return nil
	})
	w.NBCtl("--wait=hv", "sync")
	for _, p := range []*lab.Pod{near, far} {
		w.Must(p.Do(func() error {
			stop, err := labtest.AnswerShortly(90)
			if err == nil {
				t.Cleanup(stop)
			}
			return err
		}))
	}
	to := append(w.Links(near)["net1"].IPs(), w.Links(far)["net1"].IPs()...)
	for _, address := range append(to, "10.12.0.200", "fd12::c801") {
		for _, df := range []bool{true, false} {
			for _, family := range []string{"-4", "-6"} {
				w.Exec(sender, "ip", family, "route", "flush", "cache")
			}
			w.Must(sender.Do(func() error {
				told, err := labtest.LargePackets(address, 90, 1542, df)
				if err != nil {
					t.Errorf("to %s, DF %v: %v", address, df, err)
				} else if df && told != 1400 {
					t.Errorf("to %s, DF %v: the sender was told %d, want 1400", address, df, told)
				}
				return nil
			}))
		}
	}
	w.Must(sender.Do(func() error {
		stop, err := labtest.AnswerLargely(91, 1542, 1400)
		if err == nil {
			t.Cleanup(stop)
		}
		return err
	}))
	for _, address := range w.Links(sender)["net1"].IPs() {
		w.Must(far.Do(func() error {
			if _, err := labtest.LargePackets(address, 91, 1, false); err != nil {
				t.Errorf("large answers from %s: %v", address, err)
			}
			return nil
		}))
	}
	w.Must(w.RemoveManifest("service-large.yaml"))
	w.End(sender, near, far)
	w.Must(w.RemoveManifest(labtest.NADFile("high")))
	w.Must(w.RemoveManifest(labtest.NADFile("low")))
	w.AsBefore()
}
