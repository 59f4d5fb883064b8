package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// JSON writes a value of this package as JSON.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// maxCell is longer than any text that our programs write, in bytes.
const maxCell = 64 << 10

// printf writes a line of a table. A cell that nodes or tenants wrote cannot end the line or begin another cell.
func printf(w io.Writer, format string, values ...any) error {
	for i, v := range values {
		switch v.(type) {
		case bool, int, uint64:
		default:
			values[i] = conf.OneLine(fmt.Sprint(v), maxCell)
		}
	}
	_, err := fmt.Fprintf(w, format, values...)
	return err
}

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
			used = append(used, s.count(s.Used))
			free = append(free, s.count(s.Free))
		}
		printf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", n.Name, orDash(n.Topology), words(subnets),
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
	line := func(name string, value any) { printf(t, "%s:\t%v\n", name, value) }
	line("Network", n.Name)
	line("State", n.state())
	for _, l := range n.network.Lines() {
		if l.Key == "mtu" && n.MTU == 0 {
			l.Text = n.mtuOfNodes()
		}
		line(l.Label, l.Text)
		if l.Key == "router" && n.Gateway != nil {
			n.Gateway.details(line)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, part := range []func(io.Writer){n.subnets, n.nads, n.virtual, n.outside, n.ports, n.reserved, n.conflicts} {
		part(t)
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// mtuOfNodes is the MTU of a network without the key mtu.
func (n *Network) mtuOfNodes() string {
	if s := n.SmallestMTU; s != nil {
		return fmt.Sprintf("%d, which all nodes carry, and node %s no more", s.MTU, s.Node)
	}
	return "what all nodes carry"
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
		printf(w, "%s\t%s\t%s\t%s\n", s.Subnet, s.Gateway, s.count(s.Used), s.count(s.Free))
	}
}

// nodeSubnets writes the subnets of a layer3 network, and then its node subnets.
func (n *Network) nodeSubnets(w io.Writer) {
	fmt.Fprintln(w, "\nSUBNET\tBLOCKS\tUSED\tFREE")
	for _, s := range n.Subnets {
		if s.NodeSubnets != nil {
			printf(w, "%s\t/%d\t%s\t%s\n", s.Subnet, s.NodeSubnets.PrefixLength, s.count(s.NodeSubnets.Used),
				s.count(s.NodeSubnets.Free))
		}
	}
	fmt.Fprintln(w, "\nNODE\tBLOCK\tGATEWAY\tUSED\tFREE")
	for _, s := range n.Subnets {
		if s.NodeSubnets == nil {
			printf(w, "%s\t%s\t%s\t%d\t%d\n", s.Node, s.Subnet, s.Gateway, s.Used, s.Free)
		}
	}
}

// details writes the fields of a gateway.
func (g *Gateway) details(line func(name string, value any)) {
	line("Gateway", words(g.Addresses)+" on "+netmodel.VLANWords(g.Physical, g.VLAN))
	line("Next hop", words(g.NextHops))
	if g.MTU != 0 {
		line("Gateway MTU", g.MTU)
	}
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
		printf(w, "%s\t%t\t%s\t%s\n", nad.Name, nad.Ready, since, orDash(nad.Reason))
	}
}

func (n *Network) virtual(w io.Writer) {
	if len(n.VirtualAddresses) == 0 {
		return
	}
	fmt.Fprintln(w, "\nADDRESS\tSERVICE")
	for _, v := range n.VirtualAddresses {
		printf(w, "%s\t%s\n", v.Address, v.Service)
	}
}

// reserved writes what IPAMClaims have while no pod has their port.
func (n *Network) reserved(w io.Writer) {
	if len(n.IPAMClaims) == 0 {
		return
	}
	fmt.Fprintln(w, "\nIPAMCLAIM WITHOUT A POD\tMAC\tADDRESSES")
	for _, c := range n.IPAMClaims {
		printf(w, "%s\t%s\t%s\n", c.Name, c.MAC, words(c.Addresses))
	}
}

// outside writes the outside addresses of the pods.
func (n *Network) outside(w io.Writer) {
	titled := false
	for i := range n.Ports {
		p := &n.Ports[i]
		for _, a := range p.Outside {
			if !titled {
				fmt.Fprintln(w, "\nOUTSIDE ADDRESS\tKIND\tPOOL\tPOD\tINTERFACE")
				titled = true
			}
			printf(w, "%s\t%s\t%s\t%s\t%s\n", a.Address, a.Kind, a.Pool, p.pod(), p.Interface)
		}
	}
}

func (n *Network) ports(w io.Writer) {
	fmt.Fprintln(w, "\nPOD\tINTERFACE\tNODE\tADDRESSES\tMAC\tUP")
	for _, p := range n.Ports {
		printf(w, "%s\t%s\t%s\t%s\t%s\t%t\n", p.pod(),
			orDash(p.Interface), orDash(p.Node), words(p.Addresses), orDash(p.MAC), p.Up)
	}
}

// conflicts writes the addresses that hosts on the physical network use, too.
func (n *Network) conflicts(w io.Writer) {
	titled := false
	for i := range n.Ports {
		p := &n.Ports[i]
		for _, c := range p.Conflicts {
			if !titled {
				fmt.Fprintln(w, "\nADDRESS CONFLICT\tMAC OF THE OTHER HOST\tPOD\tINTERFACE")
				titled = true
			}
			printf(w, "%s\t%s\t%s\t%s\n", c.Address, c.MAC, p.pod(), p.Interface)
		}
	}
}

func (p *Port) pod() string {
	if p.Pod == "" {
		return "(not ours: " + p.Name + ")"
	}
	return p.Namespace + "/" + p.Pod
}
