package ovnport_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// profiles makes NB have two profiles, each with a port group of the operator's: the profile "web" with the group
// "pg_web", and so on.
func (w *world) profiles(t *testing.T) (web, db ovnport.Profile) {
	t.Helper()
	web = ovnport.Profile{Name: "web", Grant: "text of web", Group: w.portGroup("pg_web")}
	db = ovnport.Profile{Name: "db", Grant: "text of db", Group: w.portGroup("pg_db")}
	w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.ProfilesKey, "row": ovndbtest.Op{
		"name": "profiles", "external_ids": ovndbtest.Map(map[string]string{
			ovndb.ProfilePrefix + web.Name: web.Grant, ovndb.ProfilePrefix + db.Name: db.Grant,
		})}})
	return web, db
}

// portGroup makes a port group as an operator does, with a key that the database chooses.
func (w *world) portGroup(name string) ovnport.PortGroup {
	w.NBCtl("pg-add", name)
	return ovnport.PortGroup{UUID: strings.TrimSpace(w.NBCtl("get", "Port_Group", name, "_uuid")), Name: name}
}

func withProfiles(n *netmodel.Network, profiles ...ovnport.Profile) ovnport.Request {
	request := want(n, "net1")
	request.Profiles = profiles
	return request
}

// TestPortHasItsProfiles: it joins their groups in the one transaction that inserts the port, and nothing of it stays
// in the groups after its release.
func TestPortHasItsProfiles(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	web, db := w.profiles(t)
	mustEnsure(t, w.nb, owner("first", "sandbox-0"), want(n, "net1")) // makes the node's port list
	w.proxy.Reset()
	port := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), withProfiles(n, web, db))[0]
	w.wantCounts(t, 1, 0, 0)
	w.wantMembers(t, web.Group.UUID, port.UUID)
	w.wantMembers(t, db.Group.UUID, port.UUID)
	if len(port.Groups) != 2 || port.Groups[0] != web.Group || port.Groups[1] != db.Group {
		t.Errorf("the port has the groups %v", port.Groups)
	}
	mustRelease(t, w.nb, "sandbox-1", port)
	w.wantMembers(t, web.Group.UUID)
	w.wantMembers(t, db.Group.UUID)
}

// TestBoundaryNoPortWithoutItsProfile: if the operator's profile or its port group is not what the agent knows, nothing
// is written.
func TestBoundaryNoPortWithoutItsProfile(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	web, db := w.profiles(t)
	mustEnsure(t, w.nb, owner("first", "sandbox-0"), want(n, "net1"))
	otherText, withdrawn, gone, renamed := web, web, web, web
	otherText.Grant = "another text"
	withdrawn.Name = "gone"
	gone.Group.UUID = "00000000-0000-4000-8000-0000000000d1"
	renamed.Group.UUID = db.Group.UUID
	for name, profile := range map[string]ovnport.Profile{
		"another text": otherText, "a profile that is withdrawn": withdrawn, "a group that is gone": gone,
		"a group of another name": renamed,
	} {
		t.Run(name, func(t *testing.T) {
			before := read(t, w.Server)
			_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{withProfiles(n, db, profile)}, nobody(t))
			if _, changed := errors.AsType[*ovnport.ProfilesChanged](err); !changed || !conf.HasCode(err, conf.CodeTryAgain) {
				t.Errorf("error %v, want that the profiles are others", err)
			}
			w.wantUnchanged(t, before)
			w.wantMembers(t, db.Group.UUID)
		})
	}
}

// TestTakenOverPortChangesItsProfiles: a newer sandbox, also one of another pod of the name, has the profiles that it
// was requested with. Groups that the operator has put the port into stay.
func TestTakenOverPortChangesItsProfiles(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	web, db := w.profiles(t)
	own := w.portGroup("own")
	o := owner("web-1", "sandbox-1")
	port := mustEnsure(t, w.nb, o, withProfiles(n, web))[0]
	w.NBCtl("pg-set-ports", "own", port.Name)

	o.Sandbox = "sandbox-2"
	mustEnsure(t, w.nb, o, withProfiles(n, db))
	w.wantMembers(t, web.Group.UUID)
	w.wantMembers(t, db.Group.UUID, port.UUID)

	o.Sandbox, o.UID = "sandbox-3", "uid-of-another-pod"
	mustEnsure(t, w.nb, o, withProfiles(n))
	w.wantMembers(t, db.Group.UUID)

	request := withProfiles(n, web) // by what an agent knows of an early port, without a read
	request.Older = &ovnport.Older{Sandbox: o.Sandbox, Port: port}
	request.Older.Port.Groups = nil
	o.Sandbox = "sandbox-4"
	w.proxy.Reset()
	port = mustEnsure(t, w.nb, o, request)[0]
	w.wantCounts(t, 1, 0, 0)
	w.wantMembers(t, web.Group.UUID, port.UUID)

	request = withProfiles(n)
	request.Older = &ovnport.Older{Sandbox: o.Sandbox, Port: port}
	o.Sandbox = "sandbox-5"
	port = mustEnsure(t, w.nb, o, request)[0]
	w.wantMembers(t, web.Group.UUID)
	w.wantMembers(t, own.UUID, port.UUID)

	mustEnsure(t, w.nb, o, withProfiles(n, web)) // another attempt of the same sandbox: its network was changed
	w.wantMembers(t, web.Group.UUID, port.UUID)
}

// TestBoundaryRestoredPortHasItsProfiles: a port that NB has lost returns with its groups, or not at all. A port that is
// not in its group any more returns to it.
func TestBoundaryRestoredPortHasItsProfiles(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	web, _ := w.profiles(t)
	o := owner("web-1", "sandbox-1")
	port := mustEnsure(t, w.nb, o, withProfiles(n, web))[0]
	request := withProfiles(n, ovnport.Profile{Group: web.Group}) // no grant is needed
	request.IPs, request.MAC = port.Addresses, port.MAC
	incomplete := func(want bool) {
		t.Helper()
		lost, err := w.nb.Incomplete(timeout(t), o.Sandbox, []ovnport.Port{port})
		if err != nil || lost[port.Name] != want {
			t.Errorf("incomplete: %t, %v; want %t", lost[port.Name], err, want)
		}
	}
	restore := func() error { return w.nb.Restore(timeout(t), o, request, port, nobody(t)) }
	incomplete(false)

	w.NBCtl("lsp-del", port.Name, "--", "destroy", "Copp", ovndb.ProfilesKey)
	for _, claim := range port.Claims {
		w.NBCtl("destroy", "Copp", claim)
	}
	incomplete(true)
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	incomplete(false)
	w.wantMembers(t, web.Group.UUID, port.UUID)

	w.NBCtl("pg-del", "pg_web")
	incomplete(true)
	before := read(t, w.Server)
	if _, refused := errors.AsType[*ovndb.Refused](restore()); !refused {
		t.Error("restored without the group")
	}
	w.wantUnchanged(t, before)

	request.Profiles[0].Group = w.portGroup("pg_web")
	incomplete(true)
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	incomplete(false)
	w.wantMembers(t, request.Profiles[0].Group.UUID, port.UUID)
	w.NBCtl("clear", "Port_Group", "pg_web", "ports")
	incomplete(true)
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	w.wantMembers(t, request.Profiles[0].Group.UUID, port.UUID)
}

// TestFindPortGroup: by its name; a group of ours is recognised.
func TestFindPortGroup(t *testing.T) {
	w := newWorld(t)
	web, _ := w.profiles(t)
	w.NBCtl("pg-add", "ours", "--", "set", "Port_Group", "ours", `external_ids:"ovn-multinet/network"=shop/blue`)
	for name, want := range map[string]struct {
		uuid string
		ours bool
	}{"pg_web": {web.Group.UUID, false}, "none": {}, "ours": {strings.TrimSpace(w.NBCtl("get", "Port_Group", "ours", "_uuid")), true}} {
		uuid, ours, err := w.nb.FindPortGroup(timeout(t), name)
		if uuid != want.uuid || ours != want.ours || err != nil {
			t.Errorf("%s: %s, %t, %v; want %v", name, uuid, ours, err, want)
		}
	}
	profiles, err := w.nb.Profiles(timeout(t))
	if err != nil || len(profiles) != 2 || profiles["web"] != web.Grant {
		t.Errorf("profiles %v, %v", profiles, err)
	}
}
