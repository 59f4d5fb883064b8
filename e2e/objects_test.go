package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// operatorManifests are the objects that say what a file of --config says.
func operatorManifests(t *testing.T, config string) string {
	t.Helper()
	file, err := configfile.Read([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	objects, _, err := entry.Split(file.Document)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, o := range objects {
		text, err := yaml.Marshal(o.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "---\n")
}

// statusOf reads the status of an object of the operator.
func (w *world) statusOf(kind, name string) (entry.Status, error) {
	text, err := os.ReadFile(fmt.Sprintf("%s/%s.%s.entry.json", w.Manifests, kind, name))
	var state struct {
		Status map[string]any `json:"status"`
	}
	if err == nil {
		err = yaml.Unmarshal(text, &state)
	}
	if err != nil {
		return entry.Status{}, err
	}
	text, err = yaml.Marshal(state.Status)
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	return entry.DecodeStatus(text), err
}

// TestObjectsReplaceTheFile: an operator moves from the file of --config to objects. No row of the gateway changes
// meanwhile, and none is lost when the file is empty. Without the object the gateway goes.
func TestObjectsReplaceTheFile(t *testing.T) {
	t.Parallel()
	const config = gatewayConfig + grantedVLANs
	w := newGatewayWorld(t, config, 0)
	w.gatewayStands(0)
	w.outside("next", 42, "192.0.2.1/24", "2001:db8::1/64")
	w.network("blue", outOf(1, ""))
	p := w.Attached(1, "p", "blue")
	w.MustReach(p, "192.0.2.1")
	// OVSDB gives a row another version with each change. In rows of ports northd writes which chassis has them.
	rows := func() (all []string) {
		for _, table := range []string{"Logical_Router", "Logical_Router_Static_Route", "NAT", "HA_Chassis"} {
			out, err := exec.CommandContext(w.Ctx, "ovsdb-client", "transact", "unix:"+w.NBSocket(),
				fmt.Sprintf(`["OVN_Northbound",{"op":"select","table":%q,"where":[],"columns":["_uuid","_version"]}]`, table)).Output()
			w.Must(err)
			versions := strings.Split(string(out), `"_uuid"`)
			slices.Sort(versions)
			all = append(all, table+strings.Join(versions, ""))
		}
		return all
	}
	before := rows()

	w.Must(w.Lab.WriteManifest("operator.yaml", operatorManifests(t, config)))
	counts := func(kind, name, user string) {
		t.Helper()
		w.becomes(func() error {
			s, err := w.statusOf(kind, name)
			if err != nil || !s.Counts() || user != strings.Join(s.UsedBy, " ") {
				return fmt.Errorf("%s/%s has the status %+v, %v; want the user %q", kind, name, s, err, user)
			}
			return nil
		})
	}
	counts("Router", "core", "network shop/blue")
	// A network of a grant that is in the file alone shows when the controller has read the file.
	controllerConfig(t, w.Lab, "physicalNetworks: {provider: [{vlans: '777', namespaces: [shop]}]}\n")
	w.network("late", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":777}`)
	w.removeNAD("shop/late")
	w.MustReach(p, "192.0.2.1")
	equal(t, "versions of the gateway's rows after the change", rows(), before)

	w.Must(w.Lab.WriteManifest("operator.yaml", strings.Replace(operatorManifests(t, config), "vlanID: 42", "vlanID: 4200", 1)))
	w.becomes(func() error {
		if s, err := w.statusOf("Router", "core"); err != nil || s.Counts() || s.Accepted == nil || !strings.Contains(s.Reason, "vlanID") {
			return fmt.Errorf("the status is %+v, %v", s, err)
		}
		return nil
	})
	w.MustReach(p, "192.0.2.1")
	w.Must(w.Lab.WriteManifest("operator.yaml", "# nothing\n"))
	w.notReady("blue", "there is no router /core of the whole cluster")
	w.End(p)
	w.removeNAD("shop/blue")
}
