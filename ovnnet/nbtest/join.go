package nbtest

import (
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// Networks of two namespaces: shop/blue is on its namespace's router shop/r1, and web/green joins this router.
const (
	GreenNet = `"subnets":"10.2.0.0/24"`
	OnShopR1 = `,"router":"shop/r1"`
	LetsWeb  = `,"routerGuests":[{"namespace":"web","subnets":"10.2.0.0/16"}]`

	// NoConsent is why web/green is refused if no network of shop lets it join.
	NoConsent = `router: namespace web may not join router shop/r1: ` +
		`write "routerGuests": [{"namespace": "web", "subnets": "10.2.0.0/24"}] ` +
		`in spec.config of a network of namespace shop that is on the router`
)

// GreenKey is the row key of web/green's switch.
var GreenKey = ovndb.SwitchKey("web/green")

// NetworkIn parses a network of a namespace.
func NetworkIn(t *testing.T, namespace, name, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork(namespace, name, []byte(Spec(keys)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// RouterPorts returns the names of all ports of routers.
func (w *World) RouterPorts(t *testing.T) string {
	t.Helper()
	return w.Names(t, "Logical_Router_Port")
}

// GreenPod inserts a pod's port on web/green.
func (w *World) GreenPod(t *testing.T) {
	t.Helper()
	w.PutPort(t, "Logical_Switch", GreenKey, ovndb.AddressKey("web/green", netip.MustParseAddr("10.2.0.7")), ovndbtest.Op{
		"name": "web/web-0/net1", "external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": "web/green",
			"ovn-multinet/namespace": "web", "ovn-multinet/pod": "web-0", "ovn-multinet/sandbox": "s1"})})
}
