package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ipamclaims"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// TestIPAMClaimsRace: agents start and end pods of a few virtual machines and other pods in a subnet that is too small for
// all, and a controller frees addresses of machines, all at once and in any order. In the end no address is in use twice,
// and the rows of each IPAMClaim fit together.
func TestIPAMClaimsRace(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", `"subnets":"10.1.0.0/28,fd01::/64"`)
	const agents, steps, machines = 4, 60, 4
	var all sync.WaitGroup
	for agent := range agents {
		client := w.other(t)
		rnd := rand.New(rand.NewPCG(uint64(agent), 7))
		all.Go(func() {
			running := map[string][]ovnport.Port{} // by sandbox
			for step := range steps {
				o := launcher(agent*steps + step)
				r := want(n, "net1")
				if rnd.IntN(3) > 0 {
					r.IPAMClaim = fmt.Sprint("shop/vm", rnd.IntN(machines))
				}
				if rnd.IntN(8) == 0 {
					r.MAC = []byte{2, 0, 0, 0, byte(agent), byte(rnd.IntN(3))}
				}
				runs := errors.New("its pod runs")
				ports, err := client.Ensure(timeout(t), o, []ovnport.Request{r}, func(context.Context, ovnport.Owner) error {
					return []error{nil, runs, fmt.Errorf("%w: %w", runs, ovnport.ErrMigrates)}[rnd.IntN(3)]
				})
				switch {
				case err == nil:
					running[o.Sandbox] = ports
				case !errors.Is(err, runs) && !conf.HasCode(err, conf.CodeNoAddressLeft) && !conf.HasCode(err, conf.CodeInUse):
					t.Errorf("%v", err)
				}
				for sandbox, ports := range running {
					if len(running) < 3 && rnd.IntN(4) > 0 {
						break
					}
					released := held(ports)
					released[0].OfIPAMClaim = ovnport.IPAMClaimOf(ports[0].Name) != ""
					if err := client.Release(timeout(t), ovnport.Owner{Node: "node-1", Sandbox: sandbox}, released); err != nil {
						t.Error(err)
					}
					delete(running, sandbox)
					break
				}
			}
		})
	}
	claims, rnd := ipamclaims.New(nbrows.NewStore(openNB(t, w.Endpoint()))), rand.New(rand.NewPCG(8, 8))
	all.Go(func() {
		for range steps {
			_, err := claims.Delete(timeout(t), fmt.Sprint("shop/vm", rnd.IntN(machines)))
			if err != nil && !errors.Is(err, ipamclaims.ErrInUse) {
				t.Error(err)
			}
		}
	})
	all.Wait()
	for _, bad := range read(t, w.Server).claimViolations() {
		t.Error(bad)
	}
}

// claimViolations are what must never be of IPAMClaims. It is read from the rows' own words, not from keys.
func (s *snapshot) claimViolations() (bad []string) {
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	by := map[string]string{} // who has an address or a MAC
	has := func(who string, words ...string) {
		for _, word := range words {
			if other := by[word]; other != "" {
				say("%s and %s both have %s", who, other, word)
			}
			by[word] = who
		}
	}
	listed := map[string]string{}
	for _, row := range s.claims {
		id := ids(row)[ovndb.IPAMClaimMark]
		if ids(row)["ovn-multinet/kind"] != ovndb.IPAMClaimKind {
			continue
		}
		var words []string
		for i, word := range strings.Fields(ids(row)[ovndb.IPAMClaimHas]) {
			if i > 0 {
				word = netip.MustParsePrefix(word).Addr().String()
			}
			words = append(words, word)
		}
		has("IPAMClaim "+id, words...)
		for _, key := range strings.Fields(ids(row)["ovn-multinet/claims"]) {
			listed[key] = id
			if claim := s.claims[key]; claim == nil || ids(claim)[ovndb.IPAMClaimMark] != id {
				say("IPAMClaim %s lists the claim %s, which is %v", id, key, claim)
			}
		}
		if port := s.ports[ovndb.IPAMClaimPortKey(id)]; port != nil {
			if got := strings.Fields(ovndbtest.Strings(port["addresses"])[0]); !slices.Equal(got, words) {
				say("the port of IPAMClaim %s has %v, the IPAMClaim %v", id, got, words)
			}
			options, to := port["options"].(map[string]string), ids(port)["ovn-multinet/migration-target"]
			if shared := to != "none"; strings.Count(options["requested-chassis"], ",") > 1 ||
				strings.Contains(options["requested-chassis"], ",") != shared || (options["activation-strategy"] != "") != shared {
				say("the port of IPAMClaim %s, with the target %q, has the options %v", id, to, options)
			}
		}
	}
	for key, row := range s.claims {
		if id := ids(row)[ovndb.IPAMClaimMark]; id != "" && listed[key] != id && ids(row)["ovn-multinet/kind"] == "" {
			say("no IPAMClaim lists %v of IPAMClaim %s", row["name"], id)
		}
	}
	for key, row := range s.ports {
		switch id := ids(row)[ovndb.IPAMClaimMark]; {
		case id == "":
			has(fmt.Sprint("port ", row["name"]), strings.Fields(ovndbtest.Strings(row["addresses"])[0])...)
		case s.claims[ovndb.IPAMClaimKey(id)] == nil || key != ovndb.IPAMClaimPortKey(id):
			say("the port %v has no IPAMClaim", row["name"])
		}
	}
	return bad
}
