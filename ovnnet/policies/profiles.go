package policies

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

const kindProfiles = "security-profiles" // value of nbrows.KeyKind

// EnsureProfiles makes the row that tells agents the operator's security profiles have these ones: by name, each as a
// text. It returns whether it has written anything. No pod gets a profile that is not in the row.
func EnsureProfiles(
	ctx context.Context, s *nbrows.Store, profiles map[string]string, dhcpServers bool,
) (changed bool, err error) {
	return s.Change(ctx, "the row of security profiles", func(b *nbrows.Batch) error {
		results, err := s.Db.Transact(ctx, []ovsdb.Operation{
			ovndb.Select(nb.CoppTable, ovndb.ProfilesKey),
			ovndb.Select(nb.PortGroupTable, nbrows.DHCPServersKey, "_uuid"),
		})
		if err != nil {
			return err
		}
		var have *nb.Copp
		if err := nbrows.One(s.Db, results[0], &have); err != nil {
			return err
		}
		if dhcpServers && len(results[1].Rows) == 0 {
			b.AddDHCPServers()
		}
		switch {
		case len(profiles) > 0:
			nbrows.Put(b, nb.CoppTable, ovndb.ProfilesKey, have, profilesRow(profiles))
		case have != nil:
			b.Add(ovndb.Delete(nb.CoppTable, ovndb.ProfilesKey))
		}
		return nil
	})
}

func profilesRow(profiles map[string]string) *nb.Copp {
	row := &nb.Copp{UUID: ovndb.ProfilesKey, Name: "ovn-multinet security profiles",
		ExternalIDs: map[string]string{nbrows.KeyKind: kindProfiles}}
	for name, text := range profiles {
		row.ExternalIDs[ovndb.ProfilePrefix+name] = text
	}
	return row
}
