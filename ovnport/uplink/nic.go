package uplink

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// NICs are the network interfaces of this node.
type NICs struct{}

// Usable returns an error unless an interface may become a port of a bridge: a bridge takes all packets that the
// interface receives, so nothing else on the node may need it. tagged says that networks may be on VLANs. The error
// says what to name instead.
func (NICs) Usable(name string, tagged bool) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("the node has no interface %s%s", name, others(name))
	}
	attrs := link.Attrs()
	switch {
	case attrs.Flags&net.FlagLoopback != 0:
		return fmt.Errorf("%s is the loopback interface: name the interface that leads to the physical network", name)
	case isWireless(name):
		return fmt.Errorf("%s is wireless, and an access point takes no packets of pods from it: name a wired one", name)
	case attrs.MasterIndex != 0:
		return hasMaster(name, attrs.MasterIndex)
	}
	switch link.Type() {
	case "bridge":
		return fmt.Errorf("%s is a Linux bridge: name one of its ports that nothing else needs, after you have removed it "+
			"from the bridge", name)
	case "openvswitch":
		return fmt.Errorf("%s belongs to Open vSwitch: if it is a bridge, write bridge: %s instead of interface", name, name)
	case "dummy", "ifb", "macvlan", "macvtap", "ipvlan", "ipvtap", "vxlan", "geneve", "gre", "sit", "wireguard", "tuntap":
		return fmt.Errorf("%s is of the kind %s, which leads to no physical network: name the node's NIC, or a bond", name,
			link.Type())
	case "vlan":
		if parent, err := netlink.LinkByIndex(attrs.ParentIndex); tagged && err == nil {
			return fmt.Errorf("%s is a VLAN interface of %s, and networks on VLANs are granted, so their packets would have "+
				"two tags: name %s, or grant only untagged", name, parent.Attrs().Name, parent.Attrs().Name)
		}
	}
	return unneeded(link)
}

// others names the interfaces that an operator may have meant.
func others(name string) string {
	links, err := netlink.LinkList()
	if err != nil {
		return ""
	}
	var names []string
	for _, link := range links {
		switch link.Type() {
		case "device", "bond", "team":
			if link.Attrs().Flags&net.FlagLoopback == 0 && link.Attrs().Name != name {
				names = append(names, link.Attrs().Name)
			}
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return "; it has " + strings.Join(names[:min(len(names), maxNames)], ", ")
}

const maxNames = 8

func isWireless(name string) bool {
	_, err := os.Stat(filepath.Join("/sys/class/net", name, "phy80211"))
	return err == nil
}

func hasMaster(name string, index int) error {
	master, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("%s belongs to another interface: name that one", name)
	}
	of := master.Attrs().Name
	switch master.Type() {
	case "bond", "team":
		return fmt.Errorf("%s is a port of the %s %s: name %s", name, master.Type(), of, of)
	case "bridge":
		return fmt.Errorf("%s is a port of the Linux bridge %s: remove it from the bridge, or name another interface",
			name, of)
	case "openvswitch":
		return fmt.Errorf("%s is a port of another Open vSwitch: remove it there, or name another interface", name)
	}
	return fmt.Errorf("%s belongs to %s (%s): name another interface", name, of, master.Type())
}

// unneeded returns an error if the node itself uses an interface.
func unneeded(link netlink.Link) error {
	name := link.Attrs().Name
	if has := addressOf(link); has != "" {
		return fmt.Errorf("%s has the address %s, and the node would lose it: name an interface that the node does not use, "+
			"such as a second NIC or a VLAN interface of %s", name, has, name)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("routes of %s: %w", name, err)
	}
	for _, route := range routes {
		if route.Dst != nil && (route.Dst.IP.IsLinkLocalUnicast() || route.Dst.IP.IsMulticast()) {
			continue // the kernel makes it for each interface with IPv6
		}
		return fmt.Errorf("%s has a route of the node (to %v), and the node would lose it: name an interface that the node "+
			"does not use", name, route.Dst)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("interfaces of the node: %w", err)
	}
	for _, other := range links {
		switch other.Type() {
		case "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec":
			if other.Attrs().ParentIndex == link.Attrs().Index && other.Attrs().NetNsID < 0 {
				return fmt.Errorf("%s is below %s (%s): remove that, or name another interface", name, other.Attrs().Name,
					other.Type())
			}
		}
	}
	return nil
}

// addressOf returns an address of an interface beside its link-local ones; "": it has none.
func addressOf(link netlink.Link) string {
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return "" // the interface has gone meanwhile
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			return a.IPNet.String()
		}
	}
	return ""
}

// Lacks says what keeps an interface that is the port of a bridge from its work; "": nothing.
func (NICs) Lacks(name, bridge string) string {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Sprintf("the node has no interface %s any more", name)
	}
	if has := addressOf(link); has != "" {
		return fmt.Sprintf("%s has the address %s, which cannot be reached, because %s is a port of bridge %s: remove the "+
			"address", name, has, name, bridge)
	}
	if master, err := netlink.LinkByIndex(link.Attrs().MasterIndex); err == nil && master.Type() != "openvswitch" {
		return fmt.Sprintf("another program has put %s into %s (%s): take it out there, because it is a port of bridge %s",
			name, master.Attrs().Name, master.Type(), bridge)
	}
	switch up, state := link.Attrs().Flags&net.FlagUp != 0, link.Attrs().OperState; {
	case !up:
		return fmt.Sprintf("%s is down: ip link set %s up", name, name)
	case state == netlink.OperDown || state == netlink.OperLowerLayerDown:
		return fmt.Sprintf("%s has no carrier: see its cable, or the ports of its bond", name)
	}
	return ""
}
