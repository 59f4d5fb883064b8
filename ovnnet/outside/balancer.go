package outside

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Balancer is what a Service does with outside addresses.
type Balancer struct {
	// Vips returns the vips of the load balancers with these addresses, by protocol.
	Vips     func(addresses []netip.Addr) map[string]map[string]string
	Affinity bool
	// Sources are the subnets of the outside hosts that may connect; none: all.
	Sources []netip.Prefix
}

// balancing are the rows by which a Service is reached from outside: load balancers by protocol, and ACLs by row key.
type balancing struct {
	balancers map[string]*nb.LoadBalancer
	acls      map[string]*nb.ACL
}

// aclRules are the parts of the row keys of ACLs.
var aclRules = []string{"allow4", "deny4", "allow6", "deny6"}

// read returns the operations that read the rows of a Service, and what decodes the results.
func (r *balancing) read(db *ovndb.DB, key Key) (ops []ovsdb.Operation, decode []func(ovsdb.OperationResult) error) {
	r.balancers, r.acls = map[string]*nb.LoadBalancer{}, map[string]*nb.ACL{}
	user := key.User.String()
	for _, protocol := range nbrows.Protocols {
		ops = append(ops, ovndb.Select(nb.LoadBalancerTable, ovndb.OutsideBalancerKey(key.Router, user, protocol)))
		decode = append(decode, func(res ovsdb.OperationResult) error {
			return nbrows.Into(db, res, protocol, r.balancers)
		})
	}
	for _, rule := range aclRules {
		acl := ovndb.OutsideACLKey(key.Router, user, rule)
		ops = append(ops, ovndb.Select(nb.ACLTable, acl))
		decode = append(decode, func(res ovsdb.OperationResult) error { return nbrows.Into(db, res, acl, r.acls) })
	}
	return ops, decode
}

// wantedBalancing returns the rows that a Service should have with its addresses.
func wantedBalancing(w *Wanted, e *Entry) *balancing {
	r := &balancing{balancers: map[string]*nb.LoadBalancer{}, acls: map[string]*nb.ACL{}}
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

// text differs if the rows differ.
func (r *balancing) text() string {
	text, _ := json.Marshal([]any{r.balancers, r.acls}) // the order of a map's keys is fixed
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// setBalancing changes the present rows of a Service into the wanted ones. The first load balancer of a router makes
// the group, and the last one deletes it.
func (o *Outside) setBalancing(ctx context.Context, b *nbrows.Batch, have *present, wanted *balancing) error {
	router := have.key.Router
	in := nbrows.Holder{
		Table: nb.LogicalSwitchTable, Key: nbrows.GatewaySwitchKey(router, nbrows.PartExternal), Column: "acls",
	}
	for _, key := range nbrows.SortedKeys(have.acls) {
		if wanted.acls[key] == nil {
			b.Add(ovndb.UnlinkOne(in.Table, in.Key, in.Column, key))
		}
	}
	for _, key := range nbrows.SortedKeys(wanted.acls) {
		nbrows.PutIn(b, nb.ACLTable, key, have.acls[key], wanted.acls[key], in, in)
	}
	var keys, gone []string // wanted load balancers, and present ones
	for _, protocol := range nbrows.Protocols {
		old, row := have.balancers[protocol], wanted.balancers[protocol]
		if row != nil {
			keys = append(keys, row.UUID)
			nbrows.Put(b, nb.LoadBalancerTable, row.UUID, old, row)
		}
		if old != nil {
			gone = append(gone, old.UUID)
			if row == nil {
				b.Add(ovndb.Delete(nb.LoadBalancerTable, old.UUID))
			}
		}
	}
	scope := nbrows.OutsideScope(router)
	group := ovndb.ServiceGroupKey(scope)
	if len(keys) == 0 {
		return o.store.ExitGroup(ctx, b, group, gone, func() { b.DeleteServiceGroup(scope) })
	}
	return o.store.EnterGroup(ctx, b, group, keys, func() error { return o.createGroup(ctx, b, router) })
}

// createGroup makes the group of a router's outside load balancers. The gateway refers to it, and so do the switches of
// the router's networks. A network that joins the router later gets it from the package services.
func (o *Outside) createGroup(ctx context.Context, b *nbrows.Batch, router string) error {
	main, scope := ovndb.RouterKey(router), nbrows.OutsideScope(router)
	results, err := o.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, main, "_uuid", "ports"),
	})
	if err != nil {
		return err
	}
	var row *nb.LogicalRouter
	if err := nbrows.One(o.store.Db, results[0], &row); err != nil {
		return err
	}
	if row == nil {
		return fmt.Errorf("router %s is not there: %w", router, ErrNotReady)
	}
	keys := map[string]bool{}
	if err := o.store.AddSwitches(ctx, keys, router, row.Ports, func(string) bool { return true }); err != nil {
		return err
	}
	switches, err := ovndb.ReadByKey[nb.LogicalSwitch](
		ctx, o.store.Db, nb.LogicalSwitchTable, nbrows.SortedKeys(keys), "_uuid")
	if err != nil {
		return err
	}
	group := ovndb.ServiceGroupKey(scope)
	nbrows.Put(b, nb.LoadBalancerGroupTable, group, nil,
		&nb.LoadBalancerGroup{UUID: group, Name: nbrows.GroupPrefix + scope})
	refer := func(table, key string) {
		b.Add(ovndb.Present(table, key), ovndb.Link(table, key, nbrows.ServiceGroups, group))
	}
	refer(nb.LogicalRouterTable, ovndb.GatewayKey(router))
	for _, sw := range switches {
		refer(nb.LogicalSwitchTable, sw.UUID)
	}
	b.First(nbrows.HoldsPorts(nb.LogicalRouterTable, main, row.Ports)) // no network has joined the router meanwhile
	return nil
}
