//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// serviceNames are the Services on the network, and virtual what their owners write as their addresses; "" is headless.
// The fixed ones are those that pods want too, and one that may be the gateway.
var (
	serviceNames = []string{"db", "mail", "web"}
	virtual      = []string{"auto", "auto", "10.1.0.2", "10.1.0.3,fd01::2", "10.1.0.9", ""}
)

// edit changes, creates or deletes a Service in the API.
func (r *race) edit(name string, rnd *rand.Rand) {
	var wanted *service.Service
	if rnd.IntN(3) > 0 {
		annotations := map[string]string{service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=" + name}
		if address := virtual[rnd.IntN(len(virtual))]; address != "" {
			annotations[service.AddressAnnotation] = address
		}
		ports := `{"name":"http","port":80}`
		if rnd.IntN(2) == 0 {
			ports += `,{"name":"dns","port":53,"protocol":"UDP"}`
		}
		wanted = service.NewObject("shop", name, 1, map[string]string{service.ProxyLabel: service.ProxyName}, annotations,
			[]byte(`{"clusterIP":"None","ports":[`+ports+`]}`)).Service
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted[name] = wanted
}

// serve makes NB have what the API has of a Service now.
func (r *race) serve(ctx context.Context, who int, name string) (*services.Result, error) {
	r.mu.Lock()
	w := &services.Wanted{Network: "shop/blue", Service: r.wanted[name]}
	for _, p := range r.pods {
		for _, s := range p.sandboxes {
			if len(s.ports) > 0 && !s.ended {
				pod := service.Backend{Name: s.owner.Pod, UID: s.owner.UID, Ready: true}
				for _, a := range s.ports[0].Addresses {
					pod.Addresses = append(pod.Addresses, a.Addr())
				}
				w.Pods = append(w.Pods, pod)
			}
		}
	}
	r.mu.Unlock()
	if w.Service == nil {
		changed, err := r.services[who].Delete(ctx, w.Network, "shop/"+name)
		r.say("%d: Service %s is deleted: %t, %v", who, name, changed, err)
		return &services.Result{}, err
	}
	result, err := r.services[who].Ensure(ctx, w)
	r.say("%d: Service %s: %v, %v", who, name, result, err)
	return result, err
}

// controlServices has a controller make passes over Services, which their owners edit meanwhile.
func (r *race) controlServices(who int, rnd *rand.Rand) {
	for range 1 + rnd.IntN(4) {
		name := serviceNames[rnd.IntN(len(serviceNames))]
		if rnd.IntN(3) > 0 {
			r.edit(name, rnd)
		}
		ctx, cancel := r.call(who)
		if rnd.IntN(6) == 0 {
			changed, err := r.services[who].EnsureNetwork(ctx, "shop/blue")
			r.say("%d: services of the network: %t, %v", who, changed, err)
		} else {
			_, _ = r.serve(ctx, who, name) // of what is refused or fails, the last pass is not
		}
		cancel()
	}
}

// settleServices makes the last pass over Services. What is accepted must be what NB has then.
func (r *race) settleServices(ctx context.Context) {
	accepted := map[string]*services.Result{}
	for _, name := range serviceNames {
		result, err := r.serve(ctx, 0, name)
		switch _, refused := errors.AsType[*nbrows.Refused](err); {
		case err == nil:
			accepted["shop/"+name] = result
		case !refused && !errors.Is(err, services.ErrNotAccepted):
			r.wrong = append(r.wrong, fmt.Sprintf("the last pass over Service %s: %v", name, err))
		}
	}
	book := r.check()
	for id, result := range accepted {
		want := sorted(result.Addresses)
		if !slices.Equal(book.claims[id], want) || !slices.Equal(book.grouped[id], want) {
			r.wrong = append(r.wrong, fmt.Sprintf("Service %s has claimed %v, and load balancers in a group for %v, want %v", id,
				book.claims[id], book.grouped[id], want))
		}
	}
}

// endServices deletes all Services.
func (r *race) endServices(ctx context.Context) {
	for _, name := range serviceNames {
		r.wanted[name] = nil
		if _, err := r.serve(ctx, 0, name); err != nil {
			r.wrong = append(r.wrong, fmt.Sprintf("Service %s is not deleted: %v", name, err))
		}
	}
	// The group that neither of two controllers has seen empty goes in the controller's pass over the network.
	if _, err := r.services[0].EnsureNetwork(ctx, "shop/blue"); err != nil {
		r.wrong = append(r.wrong, fmt.Sprintf("the services of the network: %v", err))
	}
}

// book is who has which addresses and MACs, as NB says.
type book struct {
	holders map[string][]string // by address or MAC
	// claims, accepted, vips and grouped are the addresses of each Service by its claims, its own row, its load balancers,
	// and those of them that are in a group.
	claims, accepted, vips, grouped map[string][]string
	scopes                          map[string]string // of each Service, as its own row says
}

func (b *book) hold(address, holder string) { b.holders[address] = addWord(b.holders[address], holder) }

// addWord adds a word to a sorted list that does not have it.
func addWord(list []string, word string) []string {
	i, has := slices.BinarySearch(list, word)
	if has {
		return list
	}
	return slices.Insert(list, i, word)
}

func sorted(addresses []netip.Addr) (words []string) {
	for _, a := range addresses {
		words = addWord(words, a.String())
	}
	return words
}

// check reads the whole address book of NB, in one transaction, and notes what may not be at any time.
func (r *race) check() *book {
	tables := r.DumpTables(r.t, nb.LogicalSwitchPortTable, nb.LogicalRouterPortTable, nb.CoppTable, nb.LoadBalancerTable,
		nb.LoadBalancerGroupTable)
	b := &book{map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string][]string{},
		map[string][]string{}, map[string]string{}}
	peers := map[string]string{} // the switch's ports, by the name of the router's port
	for _, row := range tables[nb.LogicalSwitchPortTable] {
		if row["type"] == "router" {
			peers[row["options"].(map[string]string)["router-port"]] = row["_uuid"].(string)
			continue
		}
		for _, word := range strings.Fields(strings.Join(ovndbtest.Strings(row["addresses"]), " ")) {
			b.hold(word, "port "+row["_uuid"].(string))
		}
	}
	private := 0
	for _, row := range tables[nb.LogicalRouterPortTable] {
		for _, network := range ovndbtest.Strings(row["networks"]) {
			b.hold(netip.MustParsePrefix(network).Addr().String(), "port "+peers[row["name"].(string)])
		}
		if row["_uuid"] == ovndb.ServiceRouterPortKey("shop/blue") {
			private++
		}
	}
	for _, row := range tables[nb.CoppTable] {
		b.addClaim(row)
	}
	grouped := map[string]int{}
	for _, row := range tables[nb.LoadBalancerGroupTable] {
		for _, balancer := range ovndbtest.Strings(row["load_balancer"]) {
			grouped[balancer]++
		}
		if row["_uuid"] == ovndb.ServiceGroupKey(nbrows.NetworkScope("shop/blue")) {
			private--
		}
	}
	var words []string
	for _, row := range tables[nb.LoadBalancerTable] {
		id, groups := row["external_ids"].(map[string]string)["ovn-multinet/service"], grouped[row["_uuid"].(string)]
		for vip := range row["vips"].(map[string]string) {
			a := netip.MustParseAddrPort(vip).Addr().String()
			b.hold(a, "service "+id)
			b.vips[id] = addWord(b.vips[id], a)
			if groups > 0 {
				b.grouped[id] = addWord(b.grouped[id], a)
			}
		}
		own := strings.HasPrefix(b.scopes[id], "network ") // the group of a router is deleted with the router
		if groups > 1 || groups == 0 && own {
			words = append(words, fmt.Sprintf("load balancer %s is in %d groups", row["name"], groups))
		}
	}
	for address, holders := range b.holders {
		if len(holders) > 1 {
			words = append(words, fmt.Sprintf("%s has %d holders: %s", address, len(holders), strings.Join(holders, ", ")))
		}
	}
	for _, name := range serviceNames {
		id := "shop/" + name
		if !slices.Equal(b.claims[id], b.accepted[id]) || !slices.Equal(b.claims[id], b.vips[id]) {
			words = append(words, fmt.Sprintf("Service %s has claimed %v, its row says %v, its load balancers %v", id,
				b.claims[id], b.accepted[id], b.vips[id]))
		}
	}
	if private != 0 {
		words = append(words, "the group of the network is not there, or its private router is not")
	}
	for _, word := range words {
		r.say("WRONG: %s", word)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, words...)
	return b
}

// addClaim adds a row of the table of claims, if it is one or says what is accepted of a Service.
func (b *book) addClaim(row map[string]any) {
	ids, name := row["external_ids"].(map[string]string), row["name"].(string)
	address := name[strings.LastIndex(name, " ")+1:]
	if ids["ovn-multinet/kind"] == "service" {
		id := ids["ovn-multinet/service"]
		b.scopes[id] = ids["ovn-multinet/service-scope"]
		for a := range strings.FieldsSeq(ids["ovn-multinet/service-addresses"]) {
			b.accepted[id] = addWord(b.accepted[id], a)
		}
	}
	if n := nbrows.NewStore(nil).AcceptedConfig(&nb.Copp{ExternalIDs: ids}); n != nil && n.RouterName() == "" {
		for i := range n.Subnets { // a router's port has them
			b.hold(n.Gateway(i).String(), "gateway")
		}
	}
	if port := ids["ovn-multinet/port"]; port != "" {
		b.hold(address, "port "+port)
	}
	for key := range ids {
		if id, ok := strings.CutPrefix(key, ovndb.ClaimantPrefix+"service "); ok {
			b.hold(address, "service "+id)
			b.claims[id] = addWord(b.claims[id], address)
		}
	}
}
