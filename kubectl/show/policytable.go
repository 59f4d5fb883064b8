package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of tables. JSON has all.
const (
	maxPeers   = 6  // of a rule
	maxMembers = 20 // of a group
)

// PolicyList writes a line for each policy and network.
func PolicyList(w io.Writer, list []Policy) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no policies")
		return err
	}
	t := table(w)
	fmt.Fprintln(t, "KIND\tNAMESPACE\tNAME\tNETWORK\tPODS\tDIRECTIONS\tRULES\tPORTS\tSTATE")
	for i := range list {
		p, ports := &list[i], uncounted
		if p.Ports != nil {
			ports = strconv.Itoa(*p.Ports)
		}
		printf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", p.Kind, orDash(p.Namespace), p.Name, orDash(p.Network),
			orDash(p.Pods), words(p.Directions), p.Rules, ports, readiness(p.Ready, p.Reason))
	}
	return t.Flush()
}

// PolicyPage writes one policy with its rules, and the members of its groups.
func PolicyPage(w io.Writer, d *PolicyDetails) error {
	t := table(w)
	line := func(name string, value any) { printf(t, "%s:\t%v\n", name, value) }
	name := d.Name
	if d.Namespace != "" {
		name = d.Namespace + "/" + name
	}
	line("Policy", d.Kind+" "+name)
	line("State", readiness(d.Ready, d.Reason))
	if d.Tier != "" {
		line("Tier", fmt.Sprintf("%s, priority %d", d.Tier, d.Priority))
	}
	line("Pods", orDash(d.Pods))
	line("Networks", words(d.Networks))
	if err := t.Flush(); err != nil || len(d.Networks) == 0 {
		return err
	}
	fmt.Fprintln(t, "\nDIRECTION\tRULE\tACTION\tPEERS\tPORTS")
	for _, r := range d.Rules {
		peers := "everyone"
		if len(r.Peers) > 0 {
			peers = short(r.Peers, maxPeers)
		}
		ports := "all"
		if len(r.Ports) > 0 {
			ports = strings.Join(r.Ports, ",")
		}
		printf(t, "%s\t%s\t%s\t%s\t%s\n", r.Direction, r.Rule, r.Action, peers, ports)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nNETWORK\tGROUP\tPORTS\tPOD\tINTERFACE\tADDRESSES")
	for i := range d.Groups {
		d.Groups[i].write(t)
	}
	return t.Flush()
}

// write writes a line for each member.
func (g *Group) write(w io.Writer) {
	network, pods, count := g.Network, g.Pods, strconv.Itoa(len(g.Ports))
	line := func(pod, ifName, addresses string) {
		printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", network, pods, count, pod, ifName, addresses)
		network, pods, count = "", "", ""
	}
	if len(g.Ports) == 0 {
		line("-", "-", "-")
	}
	for i := range g.Ports {
		if i == maxMembers {
			line(fmt.Sprintf("and %d more: -o json has all", len(g.Ports)-i), "", "")
			break
		}
		p := &g.Ports[i]
		line(p.pod(), orDash(p.Interface), words(p.Addresses))
	}
}

// short joins the first words of a list, and says how many more there are.
func short(list []string, limit int) string {
	if len(list) <= limit {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more: -o json has all", strings.Join(list[:limit], "; "), len(list)-limit)
}
