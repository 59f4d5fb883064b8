package nbrows

import (
	"context"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// ReadNodes reads external_ids of the rows that nodes write about themselves, by node. A node without a row is missing.
func ReadNodes(ctx context.Context, db *ovndb.DB, nodes []string) (map[string]map[string]string, error) {
	keys := make([]string, len(nodes))
	for i, node := range nodes {
		keys[i] = ovndb.NodeKey(node)
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, db, nb.CoppTable, keys, "_uuid", "external_ids")
	if err != nil {
		return nil, err
	}
	all := map[string]map[string]string{}
	for _, row := range rows {
		all[row.ExternalIDs[KeyNode]] = row.ExternalIDs
	}
	return all, nil
}
