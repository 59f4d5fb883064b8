//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// overlapping cannot be on one router with blue.
const overlapping = `"subnets":"10.1.0.0/25","router":"r2"`

// variants are what the networks may be, by name. Networks of one router share rows and claims.
var variants = map[string][]string{
	"blue": {
		`"subnets":"10.1.0.0/24,fd01::/64","router":"r1"`,
		`"subnets":"10.1.0.0/24,fd01::/64","router":"r1","gateway":"10.1.0.9"`,
		`"subnets":"10.1.0.0/24,fd01::/64","router":"r2","routes":[{"dst":"10.9.0.0/16"}]`,
		`"subnets":"10.1.0.0/24,fd01::/64"`,
		`"subnets":"10.1.0.0/24,fd01::/64","router":"r1","subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.5,10.1.0.6"}]`,
		`"subnets":"10.1.0.0/24,fd01::/64","router":"r2","subnetsBehind":[{"subnet":"10.60.0.0/17","via":"10.1.0.6"}]`,
	},
	"red": {
		`"subnets":"10.2.0.0/24,fd02::/64","router":"r1"`,
		`"subnets":"10.2.0.0/24","router":"r1","gateway":"10.2.0.7"`,
		overlapping,
	},
	"wire": { // with the gateway's addresses
		nbtest.Localnet("provider", `,"vlanID":42,"subnets":"192.0.2.0/24"`),
		nbtest.Localnet("provider", `,"vlanID":42,"subnets":"192.0.2.0/24,2001:db8::/64","gateway":"192.0.2.9,2001:db8::1"`),
	},
	aGateway: { // of a router without networks
		nbtest.GwFull,
		strings.ReplaceAll(nbtest.GwFull, "192.0.2.10", "192.0.2.20"),
		nbtest.Gw4,
	},
	"spread": {
		`"topology":"layer3","subnets":"10.8.0.0/16/24,fd08::/56/64"`,
		`"topology":"layer3","subnets":"10.8.0.0/16/24,fd08::/56/64","router":"r1"`,
	},
}

const aGateway = "gateway"

// leaders are two controllers on one NB that both believe to lead, and a third that leads after them.
type leaders struct {
	*nbtest.World
	*turns
	t        *testing.T
	both     [2]*nbtest.Client
	parsed   map[string]*netmodel.Network
	routers  map[string]*netmodel.Router
	expected map[string]map[string]map[string]nbtest.Fields // rows, by the final networks
}

func newLeaders(t *testing.T) *leaders {
	l := &leaders{World: nbtest.NewWorld(t), turns: newTurns(), t: t,
		parsed: map[string]*netmodel.Network{}, routers: map[string]*netmodel.Router{},
		expected: map[string]map[string]map[string]nbtest.Fields{}}
	for i := range l.both {
		l.both[i] = nbtest.Connect(t, l.connect(t, i, l.Server))
	}
	return l
}

// make makes a network what it should be; "": it should not be there.
func (l *leaders) make(c *nbtest.Client, name, keys string) error {
	ctx, cancel := limited()
	defer cancel()
	if name == aGateway {
		return l.makeGateway(ctx, c, keys)
	}
	if keys == "" {
		return c.Delete(ctx, "shop/"+name, false)
	}
	id := name + keys
	if l.parsed[id] == nil {
		l.parsed[id] = nbtest.Network(l.t, name, keys)
	}
	_, err := c.Ensure(ctx, l.parsed[id], []string{"shop/" + name})
	return err
}

func (l *leaders) makeGateway(ctx context.Context, c *nbtest.Client, keys string) error {
	if keys == "" {
		return c.Gateways.DeleteUnused(ctx)
	}
	if l.routers[keys] == nil {
		l.routers[keys] = nbtest.GatewayConf(l.t, "shop/edge", keys)
	}
	_, err := c.Gateways.Ensure(ctx, l.routers[keys], nbtest.OneNode)
	return err
}

// change is what a controller makes of a network, or of the gateway.
type change struct{ name, keys string }

// allNames are the networks and the gateway.
var allNames = slices.Sorted(maps.Keys(variants))

func randomChanges(rnd *rand.Rand, names []string, n int) (changes []change) {
	for range n {
		name := names[rnd.IntN(len(names))]
		s := change{name: name}
		if i := rnd.IntN(len(variants[name]) + 1); i > 0 {
			s.keys = variants[name][i-1]
		}
		changes = append(changes, s)
	}
	return changes
}

// race has both controllers make their changes.
func (l *leaders) race(rnd *rand.Rand, changes [2][]change) (turns int) {
	var actors []func()
	for i, c := range l.both {
		actors = append(actors, func() {
			for _, s := range changes[i] {
				_ = l.make(c, s.name, s.keys) // refused, or raced by the other: the next leader makes it right
			}
		})
	}
	return l.run(rnd, actors, func(int) {})
}

// lead makes the networks what they should be in the end, as the only leader.
func (l *leaders) lead(final map[string]string) error {
	var errs []error
	for range 3 { // a network may have to wait for another one to leave a subnet or a router
		errs = nil
		for _, name := range allNames {
			if err := l.make(l.Networks, name, final[name]); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	ctx, cancel := limited()
	defer cancel()
	return errors.Join(append(errs, l.Networks.DeleteUnusedRouters(ctx))...)
}

// rowsOf returns the rows that the networks have in an NB in which nothing happened before.
func (l *leaders) rowsOf(final map[string]string) map[string]map[string]nbtest.Fields {
	key := fmt.Sprint(final)
	if l.expected[key] == nil {
		l.Clear(l.t)
		must(l.t, l.lead(final))
		l.expected[key] = l.Rows(l.t)
	}
	return l.expected[key]
}

// differences counts the rows that differ.
func differences(got, want map[string]map[string]nbtest.Fields) (n int, words []string) {
	for _, pair := range []struct {
		sign       string
		rows, than map[string]map[string]nbtest.Fields
	}{{"+", got, want}, {"-", want, got}} {
		for table, rows := range pair.rows {
			for key, row := range rows {
				if !maps.Equal(row, pair.than[table][key]) {
					n++
					words = append(words, fmt.Sprintf("%s %s %s %v", pair.sign, table, key, row))
				}
			}
		}
	}
	slices.Sort(words)
	return n, words
}

// TestTwoLeaders has two controllers that both believe to lead make, change and delete networks and a gateway. Each
// order of their transactions that a random number chooses is tried. After them, one leader makes the networks and the
// gateway what they should be: no row and no claim may be left that the same ones in an empty NB would not have.
func TestTwoLeaders(t *testing.T) {
	l := newLeaders(t)
	row := Row{Fault: "two leaders at once"}
	for i := range *schedules {
		seed := *firstSeed + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 0))
		names := allNames
		if rnd.IntN(2) == 0 { // both change the same one, again and again
			i := rnd.IntN(len(names))
			names = names[i : i+1]
		}
		changes := [2][]change{randomChanges(rnd, names, 1+rnd.IntN(4)), randomChanges(rnd, names, 1+rnd.IntN(4))}
		final := map[string]string{}
		for _, s := range randomChanges(rnd, allNames, 2) {
			final[s.name] = s.keys
		}
		if final["red"] == overlapping && strings.Contains(final["blue"], `"r2"`) {
			delete(final, "red") // the first of two that overlap wins, so both ends are correct
		}
		want := l.rowsOf(final)
		l.Clear(t)
		turns := l.race(rnd, changes)
		err := l.lead(final)
		n, words := differences(l.Rows(t), want)
		row.Tries++
		row.Residue += n
		if err != nil || n > 0 {
			t.Errorf("seed %d, %d turns: one leader after %v, wanted %v: %v\n%s", seed, turns, changes, final, err, strings.Join(words, "\n"))
		}
		if n > 0 && row.Residue > 50 {
			break
		}
	}
	report(t, row)
}
