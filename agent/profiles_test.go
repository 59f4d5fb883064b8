package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// putProfiles is the controller: the operator's --config has these profiles.
func (r *rig) putProfiles(text string) {
	r.t.Helper()
	profiles, err := netmodel.ParseSecurityProfiles([]byte(`{"securityProfiles":{` + text + `}}`))
	r.must(err)
	ids := map[string]string{}
	for name, p := range profiles {
		ids[ovndb.ProfilePrefix+name] = p.Encode()
	}
	op := ovndbtest.Op{"op": "update", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.ProfilesKey)}},
		"row": ovndbtest.Op{"external_ids": ovndbtest.Map(ids)}}
	if r.nbRow("Copp", ovndb.ProfilesKey) == nil {
		op = ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.ProfilesKey,
			"row": ovndbtest.Op{"name": "profiles", "external_ids": ovndbtest.Map(ids)}}
	}
	r.nb.Transact(r.t, op)
}

// portGroup makes a port group of the operator's.
func (r *rig) portGroup(name string) ovnport.PortGroup {
	r.nb.NBCtl("pg-add", name)
	return ovnport.PortGroup{UUID: strings.TrimSpace(r.nb.NBCtl("get", "Port_Group", name, "_uuid")), Name: name}
}

// wantMembers is how many ports these port groups have.
func (r *rig) wantMembers(want map[string]int) {
	r.t.Helper()
	got := map[string]int{}
	for _, row := range r.nb.Dump(r.t, "Port_Group") {
		got[row["name"].(string)] = len(ovndbtest.Strings(row["ports"]))
	}
	for name, n := range want {
		if got[name] != n {
			r.t.Errorf("port group %s has %d ports, want %d", name, got[name], n)
		}
	}
}

// with is the annotation for a port on a network with these profiles.
func with(network string, profiles ...string) string {
	text, _ := json.Marshal(profiles)
	return fmt.Sprintf(`[{"name":%q,"cni-args":{"securityProfiles":%s}}]`, network, text)
}

const webAndDB = `"web":{"portGroup":"pg_web","namespaces":["shop"]},"db":{"namespaces":["sh*"]}`

// TestADDWithProfiles: a pod has the profiles of the network and its own. The first ADD reads them; later ones are one
// transaction and read nothing, with early ports too.
func TestADDWithProfiles(t *testing.T) {
	r := newRig(t)
	guarded := strings.Replace(blue, `"mtu"`, `"securityProfiles":["web"],"mtu"`, 1)
	r.source.nads["blue"] = testNAD{Config: guarded}
	r.accept("blue", guarded)
	r.portGroup("pg_web")
	r.portGroup("db")
	r.putProfiles(webAndDB)
	r.start()
	p, err := r.planFor("c1", with("blue", "db"))
	r.must(err)
	r.wantCounts(1, 0, 3) // the profiles, and two groups
	r.wantMembers(map[string]int{"pg_web": 1, "db": 1})
	if got := p.Interfaces[0].Port.Groups; len(got) != 2 || got[0].Name != "db" || got[1].Name != "pg_web" {
		t.Errorf("the journal gets the groups %v", got)
	}
	r.must(r.call(agentapi.OpRelease, agentapi.Release{Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{p.Interfaces[0].Port}}, nil))
	r.wantMembers(map[string]int{"pg_web": 0, "db": 0})
	r.proxy.Reset()
	r.agent.PodBound(r.boundPod(with("blue", "db")))
	r.earlyDone()
	r.wantCounts(1, 0, 0)
	_, err = r.planFor("c2", with("blue", "db"))
	r.must(err)
	r.wantCounts(1, 0, 0)
	r.wantMembers(map[string]int{"pg_web": 1, "db": 1})
	_, err = r.planFor("c2", with("blue"))
	r.must(err)
	r.wantMembers(map[string]int{"pg_web": 1, "db": 0})
}

// TestBoundaryProfilesAreGranted: a pod gets no profile that the operator does not allow for its namespace, and never a
// port group of policies. Nothing is written.
func TestBoundaryProfilesAreGranted(t *testing.T) {
	const policies = "pg_0123456789abcdef0123456789abcdef"
	r := newRig(t)
	r.portGroup("pg_web")
	r.portGroup("db")
	for _, ours := range []string{policies, "renamed"} {
		r.nb.NBCtl("pg-add", ours, "--", "set", "Port_Group", ours, `external_ids:"ovn-multinet/network"=shop/blue`)
	}
	r.start()
	notAllowed := func(name string) []string {
		return []string{"interface net1: security profile " + name + " is not allowed for namespace shop"}
	}
	for _, tt := range []struct {
		name, profiles, asked string
		code                  uint
		says                  []string
	}{
		{"no profiles at all", ``, "web", conf.CodeNotAllowed, notAllowed("web")},
		{"an unknown profile", webAndDB, "wab", conf.CodeNotAllowed, notAllowed("wab")},
		{"another namespace's", `"web":{"namespaces":["web","shop2","sho"]}`, "web", conf.CodeNotAllowed, notAllowed("web")},
		{"a port group by its name", webAndDB, "pg_web", conf.CodeNotAllowed, notAllowed("pg_web")},
		{"a group of policies", webAndDB, policies, conf.CodeNotAllowed, notAllowed(policies)},
		{"a group of policies in the profile", `"web":{"portGroup":"renamed","namespaces":["shop"]}`, "web", conf.CodeNotAllowed,
			[]string{"port group renamed belongs to network policies"}},
		{"a group that does not exist", `"web":{"portGroup":"pg_wab","namespaces":["shop"]}`, "web", conf.CodeTryAgain,
			[]string{"interface net1: security profile web for namespace shop: port group pg_wab: it does not exist in OVN's Northbound database"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.putProfiles(tt.profiles)
			_, err := r.planFor("c1", with("blue", tt.asked))
			r.wantRefused(err, tt.code, tt.says...)
			r.wantMembers(map[string]int{"pg_web": 0, "db": 0, policies: 0, "renamed": 0})
		})
	}
	r.putProfiles(webAndDB)
	_, err := r.planFor("c1", with("blue", "web")) // allowed since: no restart is needed
	r.must(err)
	r.wantMembers(map[string]int{"pg_web": 1})
}

// TestProfilesChange: the agent follows a change of the operator's profiles and groups with the next ADD. A pod that
// runs keeps what it has.
func TestProfilesChange(t *testing.T) {
	r := newRig(t)
	r.portGroup("pg_web")
	r.portGroup("other")
	r.putProfiles(webAndDB)
	r.start()
	plan := func(container, ifName string) error {
		_, err := r.planFor(container, fmt.Sprintf(`[{"name":"blue","interface":%q,"cni-args":{"securityProfiles":["web"]}}]`, ifName))
		return err
	}
	r.must(plan("c1", "a"))
	r.wantMembers(map[string]int{"pg_web": 1})

	r.putProfiles(`"web":{"portGroup":"other","namespaces":["shop"]}`)
	r.proxy.Reset()
	r.must(plan("c2", "b"))
	r.wantCounts(1, 1, 2)
	r.wantMembers(map[string]int{"pg_web": 1, "other": 1})

	r.nb.NBCtl("pg-del", "other")
	err := plan("c3", "c")
	if !conf.HasCode(err, conf.CodeTryAgain) || !strings.Contains(err.Error(), "port group other: it does not exist") {
		t.Errorf("without the group: %v", err)
	}
	r.portGroup("other")
	r.must(plan("c3", "c"))
	r.wantMembers(map[string]int{"pg_web": 1, "other": 1})

	r.putProfiles(webAndDB[strings.Index(webAndDB, `"db"`):])
	if err := plan("c4", "d"); !conf.HasCode(err, conf.CodeNotAllowed) {
		t.Errorf("a withdrawn profile: %v", err)
	}
	r.wantMembers(map[string]int{"pg_web": 1, "other": 1})
}

// TestProfilesChangeAllTheTime: an ADD does not try for ever, and leaves nothing.
func TestProfilesChangeAllTheTime(t *testing.T) {
	r := newRig(t)
	r.portGroup("pg_web")
	r.putProfiles(webAndDB)
	r.start()
	attempts := 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPort(tx) {
			attempts++
			r.nb.NBCtl("pg-del", "pg_web", "--", "pg-add", "pg_web")
		}
	})
	_, err := r.planFor("c1", with("blue", "web"))
	r.proxy.Before(nil)
	r.wantRefused(err, conf.CodeTryAgain, "the port groups of security profiles or virtual addresses are not what they were")
	if attempts != maxAttempts {
		t.Errorf("%d attempts, want %d", attempts, maxAttempts)
	}
}

// TestBoundaryLostPortKeepsItsProfiles: a port that NB has lost comes back into the groups that the journal names,
// whatever the operator and the pod's owner say by now. Without the group it does not come back, and its owner is told.
func TestBoundaryLostPortKeepsItsProfiles(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLosing(t)
	l.putProfiles(webAndDB)
	l.profiles = []ovnport.Profile{{Group: l.portGroup("pg_web")}}
	port := l.runs("c1", "green")[0]
	l.installed("c1", true, port)
	l.repairs()
	lost := func(lose func()) {
		lose()
		l.agent.NBReplaced()
		l.repairs()
	}
	lost(func() { l.lose(port); l.putProfiles("") })
	l.wantMembers(map[string]int{"pg_web": 1})

	lost(func() { l.nb.NBCtl("pg-del", "pg_web"); l.portGroup("pg_web") })
	l.repairs() // the group has another row key, which the first pass finds out
	l.wantMembers(map[string]int{"pg_web": 1})

	lost(func() { l.nb.NBCtl("pg-del", "pg_web") })
	l.repairs()
	_, events := l.source.told()
	const want = "Warning ProfileLost: interface net1 on network shop/green: its security profiles need a port group pg_web: " +
		"it does not exist in OVN's Northbound database; ask the operator to create it again"
	if count(events, want) != 1 || count(events, "Warning PortLost") != 0 {
		t.Errorf("Events %q, want %q", events, want)
	}
	lost(func() { l.lose(port) })
	if rows := l.rows(); len(rows) != 0 {
		t.Errorf("rows %v without the group", rows)
	}
	if _, events := l.source.told(); count(events, "Warning ProfileLost") != 1 {
		t.Errorf("Events %q, want one ProfileLost", events)
	}
	l.portGroup("pg_web")
	l.repairs()
	l.wantMembers(map[string]int{"pg_web": 1})
}
