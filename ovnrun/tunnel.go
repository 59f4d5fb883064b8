package ovnrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The userspace datapath sends tunnels only by ports of its own. So the NIC of the tunnels becomes a port of a bridge,
// and the bridge gets the NIC's address.
const (
	tunnelBridge = "br-phy"
	// addressMark is the key of the bridge's external_ids with the NIC's address. It outlives the bridge's link.
	addressMark = "ovn-multinet/address"
)

// tunnelBridge makes the bridge, and returns the address of the tunnels.
func (h *Host) tunnelBridge(ctx context.Context) (netip.Addr, error) {
	if h.TunnelInterface == "" {
		return netip.Addr{}, errors.New("this node has no kernel module openvswitch: install the module, " +
			"or set ovn.tunnelInterface to a NIC that the node's other traffic does not use")
	}
	address, err := h.savedAddress(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	if address.IsValid() {
		return address.Addr(), nil
	}
	if address, err = prefixOf(h.TunnelInterface); err != nil {
		return netip.Addr{}, err
	}
	return address.Addr(), h.makeTunnelBridge(ctx, address)
}

// savedAddress is the address in the bridge's row; the zero value: there is no bridge.
func (h *Host) savedAddress(ctx context.Context) (netip.Prefix, error) {
	found, err := transact(ctx, h.Socket(), "Open_vSwitch", op{"op": "select", "table": "Bridge",
		"where": where("name", tunnelBridge), "columns": []string{"external_ids"}})
	if err != nil || len(found[0].Rows) == 0 {
		return netip.Prefix{}, err
	}
	var row struct {
		ExternalIDs [2]json.RawMessage `json:"external_ids"`
	}
	if err := json.Unmarshal(found[0].Rows[0], &row); err != nil {
		return netip.Prefix{}, err
	}
	var pairs [][2]string
	if err := json.Unmarshal(row.ExternalIDs[1], &pairs); err != nil {
		return netip.Prefix{}, err
	}
	for _, pair := range pairs {
		if pair[0] == addressMark {
			return netip.ParsePrefix(pair[1])
		}
	}
	return netip.Prefix{}, fmt.Errorf("the bridge %s on this node is not ours: delete it, or give it another name",
		tunnelBridge)
}

// makeTunnelBridge adds the bridge with the NIC as its port. The bridge's MAC is not the NIC's: the kernel would take
// what is in a tunnel for its own.
func (h *Host) makeTunnelBridge(ctx context.Context, address netip.Prefix) error {
	ip := address.Addr().As4()
	mac := net.HardwareAddr(append([]byte{2, 0}, ip[:]...))
	port := func(id, name string, kind string) []any {
		return []any{
			op{"op": "insert", "table": "Interface", "uuid-name": "i" + id,
				"row": map[string]any{"name": name, "type": kind}},
			op{"op": "insert", "table": "Port", "uuid-name": "p" + id,
				"row": map[string]any{"name": name, "interfaces": []any{"named-uuid", "i" + id}}},
		}
	}
	ops := slices.Concat(port("own", tunnelBridge, "internal"), port("nic", h.TunnelInterface, ""), []any{
		op{"op": "insert", "table": "Bridge", "uuid-name": "b", "row": map[string]any{
			"name": tunnelBridge, "datapath_type": "netdev",
			"other_config": ovsMap(map[string]string{"hwaddr": mac.String()}),
			"external_ids": ovsMap(map[string]string{addressMark: address.String()}),
			"ports":        []any{"set", []any{[]any{"named-uuid", "pown"}, []any{"named-uuid", "pnic"}}}}},
		op{"op": "mutate", "table": "Open_vSwitch", "where": []any{},
			"mutations": []any{[]any{"bridges", "insert", []any{"named-uuid", "b"}}}}})
	h.Log.Info("making the bridge of the tunnels", "bridge", tunnelBridge, "interface", h.TunnelInterface,
		"address", address)
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
	address, err := h.savedAddress(ctx)
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
	nic, err := netlink.LinkByName(h.TunnelInterface)
	if err != nil {
		return err
	}
	addr := linkAddress(address)
	if err := netlink.AddrDel(nic, addr); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("%s: %w", h.TunnelInterface, err)
	}
	// Without this, the kernel answers ARP requests for the bridge's address by the NIC too, with the NIC's MAC.
	if err := netlink.LinkSetARPOff(nic); err != nil {
		return fmt.Errorf("%s: %w", h.TunnelInterface, err)
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

// prefixOf is the first global IPv4 address of an interface. An interface with the node's default route is refused: the
// node would lose its network.
func prefixOf(name string) (netip.Prefix, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("interface %s: %w", name, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("routes of %s: %w", name, err)
	}
	for _, route := range routes {
		if ones, _ := route.Dst.Mask.Size(); ones == 0 {
			return netip.Prefix{}, fmt.Errorf("interface %s has the node's default route, and tunnels of the userspace "+
				"datapath need a NIC of their own: set ovn.tunnelInterface to another one", name)
		}
	}
	return firstAddress(link)
}

// addressOf is the first global IPv4 address of an interface, for tunnels of the kernel's datapath.
func addressOf(name string) (netip.Addr, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", name, err)
	}
	prefix, err := firstAddress(link)
	return prefix.Addr(), err
}

func firstAddress(link netlink.Link) (netip.Prefix, error) {
	name := link.Attrs().Name
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("addresses of %s: %w", name, err)
	}
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok && ip.IsGlobalUnicast() {
			ones, _ := a.Mask.Size()
			return netip.PrefixFrom(ip, ones), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("interface %s has no IPv4 address for the tunnels", name)
}
