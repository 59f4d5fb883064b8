package nbrows

import (
	"context"

	"github.com/google/uuid"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// keyNews is the key in external_ids of the row at ovndb.NewsKey whose value changes.
const keyNews = "ovn-multinet/news"

// TellNews announces to all agents that rows which they read have changed.
func (n *Store) TellNews(ctx context.Context) error {
	_, err := n.Change(ctx, "the row of news", func(b *Batch) error {
		rows, err := ovndb.ReadByKey[nb.AddressSet](
			ctx, n.Db, nb.AddressSetTable, []string{ovndb.NewsKey}, "_uuid")
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			b.Add(ovndb.SetPair(nb.AddressSetTable, ovndb.NewsKey, "external_ids", keyNews, uuid.NewString()))
			return nil
		}
		Put(b, nb.AddressSetTable, ovndb.NewsKey, nil, &nb.AddressSet{
			UUID: ovndb.NewsKey, Name: "ovnmultinet_news",
			ExternalIDs: map[string]string{KeyKind: KindNews, keyNews: uuid.NewString()},
		})
		return nil
	})
	return err
}
