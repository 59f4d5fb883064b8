package main

import (
	"encoding/json"
	"io"
	"net"
	"os"

	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

type network struct {
	Links  []link  `json:"links"`
	Routes []route `json:"routes"`
}

type link struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	MAC       string   `json:"mac,omitempty"`
	MTU       int      `json:"mtu"`
	Up        bool     `json:"up"`
	Addresses []string `json:"addresses"` // with their prefix length
}

// route is one of the main table.
type route struct {
	Dst string `json:"dst"` // 0.0.0.0/0 or ::/0 is the default
	Via string `json:"via,omitempty"`
	Dev string `json:"dev,omitempty"`
	Src string `json:"src,omitempty"`
}

func printNetwork([]string) error { return writeNetwork(os.Stdout) }

func writeNetwork(w io.Writer) (err error) {
	defer try.Handle(&err)
	n := network{Links: []link{}, Routes: []route{}}
	links := try.E1(netlink.LinkList())
	names := map[int]string{}
	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
		addrs := try.E1(netlink.AddrList(l, netlink.FAMILY_ALL))
		entry := link{Name: a.Name, Type: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU,
			Up: a.Flags&net.FlagUp != 0, Addresses: []string{}}
		for _, addr := range addrs {
			entry.Addresses = append(entry.Addresses, addr.IPNet.String())
		}
		n.Links = append(n.Links, entry)
	}
	routes := try.E1(netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE))
	for _, r := range routes {
		entry := route{Dst: r.Dst.String(), Dev: names[r.LinkIndex]}
		if r.Gw != nil {
			entry.Via = r.Gw.String()
		}
		if r.Src != nil {
			entry.Src = r.Src.String()
		}
		n.Routes = append(n.Routes, entry)
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(n)
}
