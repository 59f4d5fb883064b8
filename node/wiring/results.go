package wiring

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// CorrectResults writes the default routes as they are after SetRoutes into the results of a plan's delegates. The
// result of the interface that has the default routes gets their gateways. The other results get no default route.
func CorrectResults(p *agentapi.Plan, results []json.RawMessage, moved []netip.Addr) error {
	for i := range results {
		d := &p.Delegates[i]
		var gateways []netip.Addr
		if p.Default != nil && p.Default.Interface == d.Name {
			gateways = moved
		}
		var err error
		results[i], err = editRoutes(results[i], func(routes []route) []route {
			return withDefaults(slices.DeleteFunc(routes, route.isDefault), gateways)
		})
		if err != nil {
			return conf.Errorf(conf.CodeDecoding, "the network's plugins gave it", "interface %s: network %s: result: %w",
				d.Name, d.Network, err)
		}
	}
	return nil
}

// CorrectPrimaryResult writes the default routes that SetRoutes moved into the primary result. Everything else stays.
func CorrectPrimaryResult(result json.RawMessage, moved []netip.Addr) (json.RawMessage, error) {
	if len(moved) == 0 {
		return result, nil
	}
	return editRoutes(result, func(routes []route) []route { return withDefaults(routes, moved) })
}

// withDefaults replaces the default routes of the gateways' families.
func withDefaults(routes []route, gateways []netip.Addr) []route {
	for _, gateway := range gateways {
		dst := anywhere(gateway).String()
		routes = slices.DeleteFunc(routes, func(r route) bool { return r.to(dst) })
		routes = append(routes, route{"dst": quoted(dst), "gw": quoted(gateway.String())})
	}
	return routes
}

// quoted is the JSON of an address, in which nothing needs an escape.
func quoted(address string) json.RawMessage { return json.RawMessage(`"` + address + `"`) }

// route is a route of a result. Keys that this program does not read stay in it.
type route map[string]json.RawMessage

func (r route) to(dst string) bool { return string(r["dst"]) == `"`+dst+`"` }

func (r route) isDefault() bool { return r.to("0.0.0.0/0") || r.to("::/0") }

// editRoutes changes the routes of a result. Results of versions before 0.3 have no list of routes at the top level.
func editRoutes(result json.RawMessage, edit func([]route) []route) (json.RawMessage, error) {
	var r map[string]json.RawMessage
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, err
	}
	if r == nil {
		return result, nil // a plugin may print no result
	}
	var routes []route
	if r["routes"] != nil {
		if err := json.Unmarshal(r["routes"], &routes); err != nil {
			return nil, err
		}
	}
	if routes = edit(routes); len(routes) == 0 && r["routes"] == nil {
		return result, nil
	}
	var err error
	if r["routes"], err = json.Marshal(routes); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}
