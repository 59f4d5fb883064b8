package ovnrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The userspace datapath sends tunnels only by ports of its own. So the NIC of the tunnels becomes a port of a bridge,
// and the bridge gets the NIC's address.
const (
	tunnelBridge = "br-phy"
	// These keys of the bridge's external_ids have the NIC's address and its name. They outlive the bridge's link.
	addressMark   = "ovn-multinet/address"
	interfaceMark = "ovn-multinet/interface"
)

// savedNIC is what the bridge's row has of the NIC; the zero value: there is no bridge.
type savedNIC struct {
	address netip.Prefix
	name    string // "": an older version made the bridge
}

// tunnelBridge makes the bridge, and returns the address of the tunnels.
func (h *Host) tunnelBridge(ctx context.Context) (netip.Addr, error) {
	if h.TunnelInterface == "" {
		return netip.Addr{}, errors.New("this node has no kernel module openvswitch: install the module, " +
			"or set ovn.tunnelInterface to a NIC that the node's other traffic does not use")
	}
	saved, err := h.savedNIC(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	if saved.address.IsValid() {
		return saved.address.Addr(), nil
	}
	if saved, err = h.tunnelNIC(netip.Addr{}); err == nil {
		err = ownNIC(saved.name)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return saved.address.Addr(), h.makeTunnelBridge(ctx, saved)
}

// tunnelNIC finds the first NIC of TunnelInterface that the node has, with its first global IPv4 address, or with the
// one in the subnet that is given. Of several addresses it takes the former one, if that is still there: after a reboot
// the kernel may have them in another order, and the other nodes send their tunnels to the former one.
func (h *Host) tunnelNIC(former netip.Addr) (savedNIC, error) {
	for _, word := range strings.Split(h.TunnelInterface, ",") {
		word = strings.TrimSpace(word)
		var found savedNIC
		var there bool
		subnet, err := netip.ParsePrefix(word)
		if err == nil {
			found, there, err = nicWithin(subnet, former)
		} else {
			found, there, err = nicNamed(word, former)
		}
		if there || err != nil {
			return found, err
		}
	}
	return savedNIC{}, fmt.Errorf("ovn.tunnelInterface is %s, and this node has no such interface, and no interface with "+
		"an IPv4 address in such a subnet: add the node's to the list", h.TunnelInterface)
}

// nicNamed finds an interface by its name. One that has no address yet is the node's all the same: another one in its
// place would be used until the next restart.
func nicNamed(name string, former netip.Addr) (found savedNIC, there bool, err error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return found, false, nil
	}
	if err != nil {
		return found, true, fmt.Errorf("interface %s: %w", name, err)
	}
	found.name = name
	found.address, err = firstAddress(link, former, netip.Prefix.IsValid)
	return found, true, err
}

// nicWithin finds the interface with an address in a subnet.
func nicWithin(subnet netip.Prefix, former netip.Addr) (found savedNIC, there bool, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return found, true, err
	}
	within := func(address netip.Prefix) bool { return subnet.Contains(address.Addr()) }
	var names []string
	for _, link := range links {
		if address, err := firstAddress(link, former, within); err == nil {
			found = savedNIC{address, link.Attrs().Name}
			names = append(names, found.name)
		}
	}
	if len(names) > 1 {
		err = fmt.Errorf("ovn.tunnelInterface has %s, and %d interfaces of this node have an IPv4 address there %v: "+
			"give the subnet of exactly one, or its name", subnet, len(names), names)
	}
	return found, len(names) > 0, err
}

// savedNIC reads the bridge's row.
func (h *Host) savedNIC(ctx context.Context) (saved savedNIC, err error) {
	found, err := transact(ctx, h.Socket(), "Open_vSwitch", op{"op": "select", "table": "Bridge",
		"where": where("name", tunnelBridge), "columns": []string{"external_ids"}})
	if err != nil || len(found[0].Rows) == 0 {
		return saved, err
	}
	ids, err := externalIDs(found[0].Rows[0])
	if err != nil {
		return saved, err
	}
	if text := ids[addressMark]; text != "" {
		saved.address, err = netip.ParsePrefix(text)
	}
	saved.name = ids[interfaceMark]
	if err == nil && !saved.address.IsValid() {
		err = fmt.Errorf("the bridge %s on this node is not ours: delete it, or give it another name", tunnelBridge)
	}
	if err == nil && saved.name == "" {
		if saved.name = h.TunnelInterface; strings.ContainsAny(saved.name, "/,") {
			err = fmt.Errorf("ovn.tunnelInterface is %s, and an older version has made the bridge %s without the name of "+
				"its interface: give the name", h.TunnelInterface, tunnelBridge)
		}
	}
	return saved, err
}

// externalIDs reads external_ids of a row.
func externalIDs(row json.RawMessage) (map[string]string, error) {
	var has struct {
		ExternalIDs [2]json.RawMessage `json:"external_ids"`
	}
	var pairs [][2]string
	if err := json.Unmarshal(row, &has); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(has.ExternalIDs[1], &pairs); err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, pair := range pairs {
		ids[pair[0]] = pair[1]
	}
	return ids, nil
}

// formerAddress is the address of the tunnels that Open vSwitch has; the zero Addr: none.
func (h *Host) formerAddress(ctx context.Context) (netip.Addr, error) {
	found, err := transact(ctx, h.Socket(), "Open_vSwitch",
		op{"op": "select", "table": "Open_vSwitch", "where": []any{}, "columns": []string{"external_ids"}})
	if err != nil || len(found[0].Rows) == 0 {
		return netip.Addr{}, err
	}
	ids, err := externalIDs(found[0].Rows[0])
	address, _ := netip.ParseAddr(ids["ovn-encap-ip"]) // the zero Addr without one
	return address, err
}

// makeTunnelBridge adds the bridge with the NIC as its port. The bridge's MAC is not the NIC's: the kernel would take
// what is in a tunnel for its own.
func (h *Host) makeTunnelBridge(ctx context.Context, nic savedNIC) error {
	ip := nic.address.Addr().As4()
	mac := net.HardwareAddr(append([]byte{2, 0}, ip[:]...))
	port := func(id, name string, kind string) []any {
		return []any{
			op{"op": "insert", "table": "Interface", "uuid-name": "i" + id,
				"row": map[string]any{"name": name, "type": kind}},
			op{"op": "insert", "table": "Port", "uuid-name": "p" + id,
				"row": map[string]any{"name": name, "interfaces": []any{"named-uuid", "i" + id}}},
		}
	}
	ops := slices.Concat(port("own", tunnelBridge, "internal"), port("nic", nic.name, ""), []any{
		op{"op": "insert", "table": "Bridge", "uuid-name": "b", "row": map[string]any{
			"name": tunnelBridge, "datapath_type": "netdev",
			"other_config": ovsMap(map[string]string{"hwaddr": mac.String()}),
			"external_ids": ovsMap(map[string]string{addressMark: nic.address.String(), interfaceMark: nic.name}),
			"ports":        []any{"set", []any{[]any{"named-uuid", "pown"}, []any{"named-uuid", "pnic"}}}}},
		op{"op": "mutate", "table": "Open_vSwitch", "where": []any{},
			"mutations": []any{[]any{"bridges", "insert", []any{"named-uuid", "b"}}}}})
	h.Log.Info("making the bridge of the tunnels", "bridge", tunnelBridge, "interface", nic.name,
		"address", nic.address)
	return h.transact(ctx, ops...)
}

// keepTunnelAddress moves the address from the NIC to the bridge, each time that ovs-vswitchd has made the bridge's
// link anew.
func (h *Host) keepTunnelAddress(ctx context.Context) {
	for said := ""; ctx.Err() == nil; pause(ctx) {
		if !h.userspace() {
			return
		}
		err := h.moveAddress(ctx)
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			h.Log.Warn("the bridge of the tunnels has no address yet", "err", err)
		}
	}
}

func (h *Host) moveAddress(ctx context.Context) error {
	saved, err := h.savedNIC(ctx)
	address := saved.address
	if err != nil || !address.IsValid() {
		return err
	}
	bridge, err := netlink.LinkByName(tunnelBridge)
	if err != nil {
		return err
	}
	if have, err := prefixOf(tunnelBridge); err == nil && have == address && bridge.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	nic, err := netlink.LinkByName(saved.name)
	if err != nil {
		return err
	}
	addr := linkAddress(address)
	if err := netlink.AddrDel(nic, addr); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("%s: %w", saved.name, err)
	}
	// Without this, the kernel answers ARP requests for the bridge's address by the NIC too, with the NIC's MAC.
	if err := netlink.LinkSetARPOff(nic); err != nil {
		return fmt.Errorf("%s: %w", saved.name, err)
	}
	if err := netlink.LinkSetMTU(bridge, nic.Attrs().MTU); err != nil {
		return fmt.Errorf("%s: %w", tunnelBridge, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("%s: %w", tunnelBridge, err)
	}
	if err := netlink.AddrReplace(bridge, addr); err != nil {
		return fmt.Errorf("%s: %w", tunnelBridge, err)
	}
	return netlink.LinkSetUp(nic)
}

func linkAddress(address netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), 32)}}
}

// ownNIC refuses an interface with the node's default route: the node would lose its network.
func ownNIC(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("routes of %s: %w", name, err)
	}
	for _, route := range routes {
		if ones, _ := route.Dst.Mask.Size(); ones == 0 {
			return fmt.Errorf("interface %s has the node's default route, and tunnels of the userspace datapath need a NIC "+
				"of their own: set ovn.tunnelInterface to another one", name)
		}
	}
	return nil
}

// prefixOf is the first global IPv4 address of an interface.
func prefixOf(name string) (netip.Prefix, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return netip.Prefix{}, err
	}
	return firstAddress(link, netip.Addr{}, netip.Prefix.IsValid)
}

// firstAddress is the first global IPv4 address of an interface that is wanted, or the former one if it is among them.
func firstAddress(
	link netlink.Link, former netip.Addr, wanted func(netip.Prefix) bool,
) (first netip.Prefix, err error) {
	name := link.Attrs().Name
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return first, fmt.Errorf("addresses of %s: %w", name, err)
	}
	for _, a := range addresses {
		ip, ok := netip.AddrFromSlice(a.IP.To4())
		ones, _ := a.Mask.Size()
		if address := netip.PrefixFrom(ip, ones); ok && ip.IsGlobalUnicast() && wanted(address) {
			if ip == former || !first.IsValid() {
				first = address
			}
		}
	}
	if !first.IsValid() {
		return first, fmt.Errorf("interface %s has no IPv4 address for the tunnels", name)
	}
	return first, nil
}
