package source

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

const (
	claimSpecText = `"spec":{"network":"vlan-net","interface":"","ipRequests":["10.1.0.7/24","fd01::7/64"]}`
	claimText     = `{"apiVersion":"k8s.cni.cncf.io/v1alpha1","kind":"IPAMClaim","metadata":{"finalizers":["kubevirt.io/persistent-ipam"]},` +
		claimSpecText + `}`
)

var claimIs = netmodel.IPAMClaimStatus{
	IPs: []string{"10.1.0.7/24"}, Pod: "launcher", Allocated: true, Reason: netmodel.SuccessfulAllocation, Message: "MAC 0a:58:0a:01:00:07",
}

func claimWords(c *netmodel.IPAMClaim) string {
	return fmt.Sprintf("%s of %s %q %v %t %+v", c.ID(), c.Network, c.Interface, c.Requested, c.Deleting, c.Status)
}

// TestKubeIPAMClaims: each change of what the owner writes is told, and a status is written beside conditions of others.
func TestKubeIPAMClaims(t *testing.T) {
	s := newAPIServer()
	s.put("ipamclaims", "shop", "vm.blue", object(t, claimText))
	s.put("ipamclaims", "other", "bad", object(t, `{"spec":{"network":[],"ipRequests":["no address"]},"status":{"ips":7,"conditions":"none"}}`))
	k := s.start(t)
	told(t, s.claims, "shop/vm.blue")
	bad, err := k.KnownIPAMClaim(background, "other", "bad")
	if err != nil || !strings.HasPrefix(bad.Problem, "its spec: ") {
		t.Errorf("an IPAMClaim that cannot be read is %+v, %v", bad, err)
	}
	s.put("ipamclaims", "other", "bad", nil)
	told(t, s.claims, "other/bad")
	all, err := k.IPAMClaims(background)
	const plain = `shop/vm.blue of vlan-net "" [10.1.0.7/24 fd01::7/64] false `
	if err != nil || len(all) != 1 || claimWords(all[0]) != plain+fmt.Sprintf("%+v", netmodel.IPAMClaimStatus{}) {
		t.Fatalf("%v, %v", all, err)
	}
	s.edit("ipamclaims", "shop", "vm.blue", func(o *unstructured.Unstructured) {
		o.Object["status"] = object(t, `{"ips":["10.1.0.99/24"],"ownerPod":"as a later version has it","conditions":[{"type":"Other",`+
			`"status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`).Object
	})
	if err := k.SetIPAMClaimStatus(background, all[0], claimIs); err != nil {
		t.Fatal(err)
	}
	live, err := k.LiveIPAMClaim(background, "shop", "vm.blue")
	if want := plain + fmt.Sprintf("%+v", claimIs); err != nil || claimWords(live) != want {
		t.Errorf("%v, %v, want %s", live, err, want)
	}
	has, _, _ := unstructured.NestedSlice(s.get("ipamclaims", "shop", "vm.blue").Object, "status", "conditions")
	if len(has) != 2 || has[0].(map[string]any)["type"] != "Other" {
		t.Errorf("conditions %v", has)
	}
	eventually(t, plain+fmt.Sprintf("%+v", claimIs), func() string {
		c, err := k.KnownIPAMClaim(background, "shop", "vm.blue")
		if err != nil {
			t.Fatal(err)
		}
		return claimWords(c)
	})
	claimIs := claimIs
	claimIs.Pod = ""
	if err := k.SetIPAMClaimStatus(background, all[0], claimIs); err != nil {
		t.Fatal(err)
	}
	if pod, there, _ := unstructured.NestedMap(s.get("ipamclaims", "shop", "vm.blue").Object, "status", "ownerPod"); there && pod != nil {
		t.Errorf("the pod %v is still there", pod)
	}
	s.put("ipamclaims", "shop", "vm.blue", nil)
	if others := told(t, s.claims, "shop/vm.blue"); len(others) > 0 {
		t.Errorf("told of %q", others)
	}
	for _, err := range []error{
		k.SetIPAMClaimStatus(background, all[0], claimIs),
		func() error { _, err := k.LiveIPAMClaim(background, "shop", "vm.blue"); return err }(),
	} {
		if !errors.Is(err, netmodel.ErrNotFound) {
			t.Errorf("of an IPAMClaim that is gone: %v", err)
		}
	}
	if c, err := k.KnownIPAMClaim(background, "shop", "vm.blue"); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}

// TestManifestIPAMClaims: a folder has IPAMClaims, and a file with the status of each.
func TestManifestIPAMClaims(t *testing.T) {
	f := newFolder(t)
	changes := &names{}
	m, err := NewManifests(f.dir, Changes{Policy: func(string) {}, IPAMClaim: changes.changed}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	scan := func(want string) {
		t.Helper()
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
		if got := changes.take(); got != want {
			t.Errorf("told of %q, want %q", got, want)
		}
	}
	f.write("other.yaml", "apiVersion: example.com/v1\nkind: IPAMClaim\nmetadata: {name: x}\nspec: {network: [1]}\n")
	f.write("claim.yaml", strings.Replace(claimText, `"metadata":{`, `"metadata":{"namespace":"shop","name":"vm.blue",`, 1))
	scan("shop/vm.blue")
	if err := m.SetIPAMClaimStatus(background, &netmodel.IPAMClaim{Namespace: "shop", Name: "vm.blue"}, claimIs); err != nil {
		t.Fatal(err)
	}
	scan("")
	want := `shop/vm.blue of vlan-net "" [10.1.0.7/24 fd01::7/64] false ` + fmt.Sprintf("%+v", claimIs)
	if c, err := m.LiveIPAMClaim(background, "shop", "vm.blue"); err != nil || claimWords(c) != want {
		t.Errorf("%v, %v, want %s", c, err, want)
	}
	f.write("claim.yaml", "")
	scan("shop/vm.blue")
	if err := m.SetIPAMClaimStatus(background, &netmodel.IPAMClaim{Namespace: "shop", Name: "vm.blue"}, claimIs); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("the status of an IPAMClaim that is gone: %v", err)
	}
	if c, err := m.LiveIPAMClaim(background, "shop", "vm.blue"); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("%v, %v", c, err)
	}
	if files := f.list(); files != "claim.yaml other.yaml" {
		t.Errorf("the folder has %q", files)
	}
	f.write("claim.yaml", "apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {}\n")
	if err := m.scan(); err != nil || m.broken() != "claim.yaml" {
		t.Errorf("an IPAMClaim without a name: %v, broken %q", err, m.broken())
	}
}

// TestIPAMClaimsOfPods: what is kept of a pod says which IPAMClaims it names, also when it is trimmed twice.
func TestIPAMClaimsOfPods(t *testing.T) {
	p := apiPod("launcher", "u1", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"blue","ipam-claim-reference":"vm.blue"},` +
		`{"name":"red"},{"name":"green","ipam-claim-reference":"vm.green"}]`})
	for range 2 {
		p = policyPod(p)
		if got := fromPod(p); fmt.Sprint(got.IPAMClaims, got.Requests) != "[vm.blue vm.green] [shop/blue shop/green shop/red]" {
			t.Errorf("%v of %v", got.IPAMClaims, got.Requests)
		}
	}
}

// TestTooManyIPRequests: an IPAMClaim has as many addresses as an interface may have. More are refused, and not left out.
func TestTooManyIPRequests(t *testing.T) {
	s := newAPIServer()
	k := s.start(t)
	many := strings.Repeat(`"10.1.0.7/24",`, 16)
	for text, problem := range map[string]string{
		many + `"10.1.0.8/24"`:        "its spec.ipRequests: 17 addresses are more than 16",
		strings.TrimSuffix(many, ","): "",
	} {
		s.put("ipamclaims", "shop", "many", object(t, `{"spec":{"ipRequests":[`+text+`]}}`))
		c, err := k.LiveIPAMClaim(background, "shop", "many")
		if err != nil || c.Problem != problem || len(c.Requested) != map[bool]int{true: 16}[problem == ""] {
			t.Errorf("%d requested, %q, %v, want %q", len(c.Requested), c.Problem, err, problem)
		}
	}
}
