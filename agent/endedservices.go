package agent

import (
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// endedServices are the lists of ended connections of Services that concern this node: those of the scopes on which it
// has pods, and of the routers whose gateway may be on it. A pod's list is found in three messages: one reads the
// network of its port, the next one the router of this network, and the last one whether the list has changed.
type endedServices struct {
	*node
	gateways []string          // the routers whose gateway may be on this node
	ports    map[string]string // the names of the ports of this node's pods, by row key
	networks map[string]string // the IDs of networks, by the row keys of ports
	scopes   map[string]string // by network ID
	next     map[string]string // the scopes, when the answer to the message is there
	lists    map[string]servedList
	messages int
}

// servedList is the list of a scope as last read.
type servedList struct {
	version string
	entries []ended.Served
}

// query is an operation that reads, and what takes its result.
type query struct {
	op   ovsdb.Operation
	take func(ovsdb.OperationResult) error
}

const (
	// maxNewPorts bounds the ports whose networks one message reads.
	maxNewPorts = 256
	// scopesEvery is in how many messages once the scopes of known networks are read again: few networks ever join a
	// router or leave it. If NB has news, messages are rare, and each of them reads the scopes.
	scopesEvery = 6
)

// queries returns what one message reads. changed takes the scopes whose lists have another version.
func (s *endedServices) queries(ports map[string]string, changed map[string]string) (list []query) {
	s.messages++
	networks, scopes, unknown := map[string]string{}, map[string]string{}, 0
	for key := range ports {
		network := s.networks[key]
		if network == "" {
			if unknown++; unknown <= maxNewPorts {
				list = append(list, s.networkOf(networks, key))
			}
			continue
		}
		networks[key] = network
		switch known := s.scopes[network]; {
		case scopes[network] != "":
		case known != "" && !s.nbdb.HasNews() && s.messages%scopesEvery != 0:
			scopes[network] = known
		default:
			scopes[network] = nbrows.NetworkScope(network)
			for _, sw := range []string{network, nbrows.NodeSwitch(network, s.conf.NodeName)} {
				list = append(list, s.scopeOf(scopes, network, sw))
			}
		}
	}
	lists := map[string]servedList{}
	for _, scope := range s.known() {
		if _, asked := lists[scope]; !asked {
			lists[scope] = s.lists[scope]
			list = append(list, s.versionOf(changed, scope))
		}
	}
	s.ports, s.networks, s.next, s.lists = ports, networks, scopes, lists
	return list
}

// known returns the scopes of this node, some of them twice.
func (s *endedServices) known() (list []string) {
	for _, scope := range s.scopes {
		list = append(list, scope)
	}
	for _, router := range s.gateways {
		list = append(list, nbrows.RouterScope(router))
	}
	return list
}

// learning reports whether the next message reads something that this node has got since.
func (s *endedServices) learning() bool {
	for _, scope := range s.known() {
		if _, read := s.lists[scope]; !read {
			return true
		}
	}
	for _, network := range s.networks {
		if s.scopes[network] == "" {
			return true
		}
	}
	return false
}

func (s *endedServices) networkOf(networks map[string]string, port string) query {
	op := ovndb.Select(nb.LogicalSwitchPortTable, port, "external_ids")
	return query{op, func(r ovsdb.OperationResult) error {
		var row *nb.LogicalSwitchPort
		err := nbrows.One(s.nbdb, r, &row)
		if row != nil {
			networks[port] = row.ExternalIDs[nbrows.KeyNetwork]
		}
		return err
	}}
}

func (s *endedServices) scopeOf(scopes map[string]string, network, sw string) query {
	op := ovndb.Select(nb.LogicalRouterPortTable, ovndb.RouterPortKey(sw), "name")
	return query{op, func(r ovsdb.OperationResult) error {
		var row *nb.LogicalRouterPort
		err := nbrows.One(s.nbdb, r, &row)
		if row != nil {
			if router, ok := strings.CutSuffix(row.Name, ":"+sw); ok {
				scopes[network] = nbrows.RouterScope(router)
			}
		}
		return err
	}}
}

func (s *endedServices) versionOf(changed map[string]string, scope string) query {
	return query{ended.SelectServed(scope), func(r ovsdb.OperationResult) error {
		version := ""
		for _, row := range r.Rows {
			if v, ok := row["_version"].(ovsdb.UUID); ok {
				version = v.GoUUID
			}
		}
		if version != s.lists[scope].version {
			changed[scope] = version
		}
		return nil
	}}
}

// entries returns the entries of all lists.
func (s *endedServices) entries() (list []ended.Served) {
	for _, l := range s.lists {
		list = append(list, l.entries...)
	}
	return list
}

// zonesOf returns the zones in which load balancers of a scope translate on this node: those of the clients' ports, and
// of the gateway.
func (s *endedServices) zonesOf(scope string, zones ovnport.Zones) (list []int) {
	for key, name := range s.ports {
		if zone, ok := zones[name]; ok && s.scopes[s.networks[key]] == scope {
			list = append(list, zone)
		}
	}
	for _, router := range s.gateways {
		if nbrows.RouterScope(router) == scope {
			list = append(list, zones.OfRouter(nbrows.GatewayPartName(router, "gateway"))...)
		}
	}
	return list
}
