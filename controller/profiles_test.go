package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestProfilesAreTold: NB has the operator's security profiles, and no others, also after somebody has changed the row,
// and after NB was replaced.
func TestProfilesAreTold(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	c, _ := routing(t, w, a, w.Networks)
	told := func() string {
		var words []string
		for _, row := range w.Dump(t, "Copp") {
			ids, _ := row["external_ids"].(map[string]string)
			for key, text := range ids {
				if name, ok := strings.CutPrefix(key, ovndb.ProfilePrefix); ok && row["_uuid"] == ovndb.ProfilesKey {
					words = append(words, name+" "+text)
				}
			}
		}
		slices.Sort(words)
		return strings.Join(words, "; ")
	}
	configure := func(text string) {
		profiles, err := netmodel.ParseSecurityProfiles([]byte(`{"securityProfiles":{` + text + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		c.Configure(configfile.Config{Profiles: profiles})
	}
	const web, db = `web {"portGroup":"pg_web","namespaces":["shop"]}`, `db {"portGroup":"db","namespaces":["shop","team-*"]}`
	configure(`"web":{"portGroup":"pg_web","namespaces":["shop"]},"db":{"namespaces":["shop","team-*"]}`)
	eventually(t, db+"; "+web, told)
	configure(`"web":{"portGroup":"pg_web","namespaces":["shop"]}`)
	eventually(t, web, told)
	for _, command := range []string{"set", "destroy"} {
		args := []string{command, "Copp", ovndb.ProfilesKey}
		if command == "set" {
			args = append(args, fmt.Sprintf("external_ids:%q=x", ovndb.ProfilePrefix+"other"))
		}
		w.NBCtl(args...)
		c.NBReplaced()
		eventually(t, web, told)
	}
	if groups := w.Dump(t, "Port_Group"); len(groups) > 0 {
		t.Errorf("port groups that no profile names: %v", groups)
	}
	// The controller makes the one port group that is ours. No key in it says so: agents would refuse it.
	const dhcp = `dhcp-server {"portGroup":"ovnmultinet_dhcp_servers","namespaces":["shop"]}`
	configure(`"dhcp-server":{"portGroup":"ovnmultinet_dhcp_servers","namespaces":["shop"]}`)
	eventually(t, dhcp, told)
	c.NBReplaced()
	configure(`"dhcp-server":{"portGroup":"ovnmultinet_dhcp_servers","namespaces":["shop","web"]}`)
	eventually(t, strings.Replace(dhcp, `"shop"`, `"shop","web"`, 1), told)
	for _, row := range w.Dump(t, "Port_Group") {
		if row["name"] != netmodel.DHCPServersGroup || len(ovndbtest.Strings(row["acls"])) != 1 {
			t.Errorf("port group %v", row)
		}
		if ids := row["external_ids"].(map[string]string); ids[nbrows.KeyNetwork] != "" || ids[nbrows.KeyKind] != "" {
			t.Errorf("port group %v has a key of ours", row)
		}
	}
	for _, acl := range w.Dump(t, "ACL") {
		if acl["action"] != "allow" || !strings.HasPrefix(fmt.Sprint(acl["match"]), "inport == @ovnmultinet_dhcp_servers && (udp.src == {67, 547} ||") {
			t.Errorf("ACL %v", acl)
		}
	}
	configure("")
	eventually(t, "", told)
	eventually(t, "0", func() string { return fmt.Sprint(len(w.Dump(t, "Copp"))) })
}
