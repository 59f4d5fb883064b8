package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// JSON writes a value of this package as JSON.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// List writes a line for each network.
func List(w io.Writer, list []Network) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no networks")
		return err
	}
	t := table(w)
	fmt.Fprintln(t, "NETWORK\tTOPOLOGY\tSUBNETS\tROUTER\tPORTS\tUSED\tFREE\tSTATE")
	for i := range list {
		n := &list[i]
		var subnets, used, free []string
		for _, s := range n.Subnets {
			if s.Node != "" {
				continue // the whole subnet is in the list too
			}
			subnets = append(subnets, s.Subnet.String())
			used = append(used, strconv.FormatUint(s.Used, 10))
			free = append(free, strconv.FormatUint(s.Free, 10))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", n.Name, orDash(n.Topology), words(subnets),
			orDash(n.Router), len(n.Ports), words(used), words(free), n.state())
	}
	return t.Flush()
}

func (n *Network) state() string { return readiness(n.Ready, n.Reason) }

func readiness(ready bool, reason string) string {
	switch {
	case ready && reason != "":
		return "ready, but " + reason
	case ready:
		return "ready"
	}
	return "not ready: " + reason
}

func orDash(s string) string { return cmp.Or(s, "-") }

func words[T any](list []T) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = fmt.Sprint(v)
	}
	return orDash(strings.Join(out, ","))
}

// Details writes all fields of one network.
func Details(w io.Writer, n *Network) error {
	t := table(w)
	line := func(name string, value any) { fmt.Fprintf(t, "%s:\t%v\n", name, value) }
	line("Network", n.Name)
	line("State", n.state())
	line("Topology", orDash(n.Topology))
	if n.Physical != "" {
		line("Physical network", onVLAN(n.Physical, n.VLAN))
	}
	line("Router", orDash(n.Router))
	if n.Gateway != nil {
		n.Gateway.details(line)
	}
	mtu := "what the underlay leaves"
	if n.Physical != "" {
		mtu = "the bridge's on each node"
	}
	if n.MTU != 0 {
		mtu = strconv.Itoa(n.MTU)
	}
	line("MTU", mtu)
	if n.PortSecurity != nil && !*n.PortSecurity {
		line("Port security", "off")
	}
	line("Excluded", words(n.ExcludeSubnets))
	routes := make([]string, len(n.Routes))
	for i, r := range n.Routes {
		routes[i] = fmt.Sprintf("%s via %s", r.Dst, r.GW)
		if !r.GW.IsValid() {
			routes[i] = fmt.Sprintf("%s via each node's gateway", r.Dst)
		}
	}
	line("Routes", words(routes))
	if err := t.Flush(); err != nil {
		return err
	}
	for _, part := range []func(io.Writer){n.subnets, n.nads, n.virtual, n.outside, n.ports} {
		part(t)
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (n *Network) subnets(w io.Writer) {
	if len(n.Subnets) == 0 {
		return
	}
	if n.Subnets[0].NodeSubnets != nil {
		n.nodeSubnets(w)
		return
	}
	fmt.Fprintln(w, "\nSUBNET\tGATEWAY\tUSED\tFREE")
	for _, s := range n.Subnets {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", s.Subnet, s.Gateway, s.Used, s.Free)
	}
}

// nodeSubnets writes the subnets of a layer3 network, and then its node subnets.
func (n *Network) nodeSubnets(w io.Writer) {
	fmt.Fprintln(w, "\nSUBNET\tBLOCKS\tUSED\tFREE")
	for _, s := range n.Subnets {
		if s.NodeSubnets != nil {
			fmt.Fprintf(w, "%s\t/%d\t%d\t%d\n", s.Subnet, s.NodeSubnets.PrefixLength, s.NodeSubnets.Used, s.NodeSubnets.Free)
		}
	}
	fmt.Fprintln(w, "\nNODE\tBLOCK\tGATEWAY\tUSED\tFREE")
	for _, s := range n.Subnets {
		if s.NodeSubnets == nil {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", s.Node, s.Subnet, s.Gateway, s.Used, s.Free)
		}
	}
}

func onVLAN(physical string, vlan int) string {
	if vlan == 0 {
		return physical + ", untagged"
	}
	return physical + ", VLAN " + strconv.Itoa(vlan)
}

// details writes the fields of a gateway.
func (g *Gateway) details(line func(name string, value any)) {
	line("Gateway", words(g.Addresses)+" on "+onVLAN(g.Physical, g.VLAN))
	line("Next hop", words(g.NextHops))
	nodes := g.Nodes
	if len(nodes) == 0 {
		nodes = []string{"none: no node with the label " + g.Selector + " has an agent that runs"}
	}
	line("Gateway nodes", words(nodes))
	hidden := make([]string, len(g.SNAT))
	for i, s := range g.SNAT {
		hidden[i] = s.Subnet + " as " + s.As
	}
	line("SNAT", words(hidden))
}

func (n *Network) nads(w io.Writer) {
	fmt.Fprintln(w, "\nNETWORKATTACHMENTDEFINITION\tREADY\tSINCE\tREASON")
	for _, nad := range n.NADs {
		since := "-"
		if nad.Since != nil {
			since = nad.Since.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%t\t%s\t%s\n", nad.Name, nad.Ready, since, orDash(nad.Reason))
	}
}

func (n *Network) virtual(w io.Writer) {
	if len(n.VirtualAddresses) == 0 {
		return
	}
	fmt.Fprintln(w, "\nADDRESS\tSERVICE")
	for _, v := range n.VirtualAddresses {
		fmt.Fprintf(w, "%s\t%s\n", v.Address, v.Service)
	}
}

// outside writes the outside addresses of the pods.
func (n *Network) outside(w io.Writer) {
	title := "\nOUTSIDE ADDRESS\tKIND\tPOOL\tPOD\tINTERFACE\n"
	for i := range n.Ports {
		p := &n.Ports[i]
		for _, a := range p.Outside {
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\n", title, a.Address, a.Kind, a.Pool, p.pod(), p.Interface)
			title = ""
		}
	}
}

func (n *Network) ports(w io.Writer) {
	fmt.Fprintln(w, "\nPOD\tINTERFACE\tNODE\tADDRESSES\tMAC\tUP")
	for _, p := range n.Ports {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%t\n", p.pod(),
			orDash(p.Interface), orDash(p.Node), words(p.Addresses), orDash(p.MAC), p.Up)
	}
}

func (p *Port) pod() string {
	if p.Pod == "" {
		return "(not ours: " + p.Name + ")"
	}
	return p.Namespace + "/" + p.Pod
}
