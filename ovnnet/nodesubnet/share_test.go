package nodesubnet_test

import (
	"net/netip"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

func blockKey(block string) string {
	return ovndb.NodeSubnetKey("shop/blue", netip.MustParsePrefix(block))
}
