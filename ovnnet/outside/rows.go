package outside

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// rows are the rows that a user should have, beside its claims and lists; none if all are deleted.
type rows struct {
	entry      *nb.Copp
	nats       map[string]*nb.NAT // of an interface
	translator string             // the node that translates; "": the gateway's nodes do
	balancing                     // of a Service
}

// wantedRows returns the rows of a user with its addresses.
func wantedRows(w *Wanted, e *Entry) *rows {
	r := &rows{translator: e.translator}
	text := natText(w)
	if w.Balancer != nil {
		r.balancing = wantedBalancing(w, e)
		text = r.text()
	} else {
		r.nats = wantedNATs(w, e.Addresses)
	}
	r.entry = entryRow(e, text)
	return r
}

// natText describes the NAT rows of a user.
func natText(w *Wanted) string {
	words := []string{w.PortName}
	for _, a := range w.Inside {
		words = append(words, a.String())
	}
	if w.Kind == Floating && w.Distributed {
		words = append(words, "distributed")
	}
	return strings.Join(words, " ")
}

// wantedNATs returns the NAT rows of a user, by row key.
func wantedNATs(w *Wanted, addresses []Address) map[string]*nb.NAT {
	rows := map[string]*nb.NAT{}
	for _, a := range addresses {
		row := &nb.NAT{
			UUID: ovndb.OutsideNATKey(w.Router.Name, w.User.String(), nbrows.Family(a.Addr)),
			Type: nb.NATTypeSNAT, ExternalIP: a.String(), LogicalIP: inside(w, a.Addr).String(),
			ExternalIDs: map[string]string{nbrows.KeyOutsideRouter: w.Router.Name, keyUser: w.User.String()},
		}
		if w.Kind == Floating {
			row.Type = nb.NATTypeDNATAndSNAT
			if w.Distributed {
				mac, _ := ovndb.LeaseMAC(netip.Prefix{}, a.Addr)
				text := mac.String()
				row.ExternalMAC, row.LogicalPort = &text, &w.PortName
			}
		}
		rows[row.UUID] = row
	}
	return rows
}

// wantedBalancing returns the rows that a Service should have with its addresses.
func wantedBalancing(w *Wanted, e *Entry) balancing {
	r := balancing{map[string]*nb.LoadBalancer{}, map[string]*nb.ACL{}}
	user := w.User.String()
	marks := func() map[string]string {
		ids := map[string]string{nbrows.KeyOutsideRouter: w.Router.Name, keyUser: user}
		if e.Kind == Forwarded {
			ids[nbrows.KeyOutsideUse] = nbrows.UseForward
		}
		return ids
	}
	list := e.IPs()
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = a.String()
	}
	for protocol, vips := range w.Balancer.Vips(list) {
		row := &nb.LoadBalancer{
			UUID: ovndb.OutsideBalancerKey(w.Router.Name, user, protocol), Vips: vips, ExternalIDs: marks(),
			Name: w.Router.Name + ":outside:" + w.User.Namespace + "/" + w.User.Service + ":" + protocol,
		}
		nbrows.SetBalancer(row, protocol, strings.Join(words, " "), w.Balancer.Affinity)
		r.balancers[protocol] = row
	}
	if len(w.Balancer.Sources) == 0 {
		return r
	}
	for _, a := range list {
		family := nbrows.Family(a)
		to := fmt.Sprintf("inport == %q && ip%s.dst == %s && (%s)",
			nbrows.GatewayPartName(w.Router.Name, nbrows.PartProvider), family, a, e.matchOf(a))
		var sources []string
		for _, p := range w.Balancer.Sources {
			if p.Addr().Is4() == a.Is4() {
				sources = append(sources, p.String())
			}
		}
		add := func(rule, match, action string, priority int) {
			key := ovndb.OutsideACLKey(w.Router.Name, user, rule+family)
			r.acls[key] = &nb.ACL{
				UUID: key, Direction: "from-lport", Priority: priority, Match: match, Action: action,
				ExternalIDs: marks(),
			}
		}
		if len(sources) > 0 {
			match := fmt.Sprintf("%s && ip%s.src == {%s}", to, family, strings.Join(sources, ", "))
			add("allow", match, "allow", sourcePriority+1)
		}
		add("deny", to, "drop", sourcePriority)
	}
	return r
}

// sourcePriority is the priority of the ACL that drops what comes from other sources.
const sourcePriority = 1000

// matchOf matches what a user has of an address. A Service that has an address alone needs no ports there. Neighbour
// discovery never matches.
func (e *Entry) matchOf(address netip.Addr) string {
	var words []string
	for _, protocol := range nbrows.Protocols {
		var ports []string
		for _, a := range e.Addresses {
			if a.Addr == address && a.Port.Protocol == protocol {
				ports = append(ports, strconv.Itoa(int(a.Port.Number)))
			}
		}
		switch {
		case e.Kind != Forwarded:
			words = append(words, protocol)
		case len(ports) > 0:
			words = append(words, fmt.Sprintf("%s.dst == {%s}", protocol, strings.Join(ports, ", ")))
		}
	}
	return strings.Join(words, " || ")
}

// text differs if the rows differ.
func (r balancing) text() string {
	text, _ := json.Marshal([]any{r.balancers, r.acls}) // the order of a map's keys is fixed
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
