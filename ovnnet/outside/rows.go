package outside

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	if len(w.Balancer.Sources) > 0 {
		limitSources(w, e, marks, r.acls)
	}
	return r
}

// limitSources adds the ACLs that let only some outside hosts reach a Service: at its outside addresses, and at the
// pods' own addresses.
func limitSources(w *Wanted, e *Entry, marks func() map[string]string, acls map[string]*nb.ACL) {
	places, sources := insidePlaces(w.Balancer.Inside), map[string][]string{} // by family
	for _, a := range e.IPs() {
		family := nbrows.Family(a)
		places[family] = append(places[family], fmt.Sprintf("ip%s.dst == %s && (%s)", family, a, e.matchOf(a)))
	}
	for _, p := range w.Balancer.Sources {
		sources[nbrows.Family(p.Addr())] = append(sources[nbrows.Family(p.Addr())], p.String())
	}
	for family, list := range places {
		to := fmt.Sprintf("inport == %q && ((%s))",
			nbrows.GatewayPartName(w.Router.Name, nbrows.PartProvider), strings.Join(list, ") || ("))
		add := func(rule, match, action string, priority int) {
			key := ovndb.OutsideACLKey(w.Router.Name, w.User.String(), rule+family)
			acls[key] = &nb.ACL{
				UUID: key, Direction: "from-lport", Priority: priority, Match: match, Action: action, ExternalIDs: marks(),
			}
		}
		if from := sources[family]; len(from) > 0 {
			match := fmt.Sprintf("%s && ip%s.src == {%s}", to, family, strings.Join(from, ", "))
			add("allow", match, "allow", sourcePriority+1)
		}
		add("deny", to, "drop", sourcePriority)
	}
}

// insidePlaces matches the pods' own addresses and ports, by family. Ports at the same pods share a list of addresses.
func insidePlaces(inside map[string][]netip.AddrPort) map[string][]string {
	places := map[string][]string{}
	for _, protocol := range nbrows.Protocols {
		at := map[string]map[uint16][]string{"4": {}, "6": {}}
		for _, place := range inside[protocol] {
			family := nbrows.Family(place.Addr())
			at[family][place.Port()] = append(at[family][place.Port()], place.Addr().String())
		}
		for family, byPort := range at {
			ports := map[string][]string{} // by addresses
			for _, port := range slices.Sorted(maps.Keys(byPort)) {
				list := strings.Join(byPort[port], ", ")
				ports[list] = append(ports[list], strconv.Itoa(int(port)))
			}
			for _, list := range slices.Sorted(maps.Keys(ports)) {
				places[family] = append(places[family], fmt.Sprintf("%s.dst == {%s} && ip%s.dst == {%s}",
					protocol, strings.Join(ports[list], ", "), family, list))
			}
		}
	}
	return places
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
