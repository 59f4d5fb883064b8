package nbtest

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// OpenOf connects to NB as a process of that cluster.
func OpenOf(t *testing.T, endpoint, cluster string) *ovndb.DB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{endpoint}, Model: model, LeaderOnly: true, Log: slog.New(slog.DiscardHandler),
		Cluster: func(context.Context) (string, error) { return cluster, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.WaitConnected(WithLimit(t)); err != nil {
		t.Fatal(err)
	}
	return db
}

// TakenBy connects as a process of a cluster, and takes NB for this cluster. adopt is the cluster that NB belonged to.
func (w *World) TakenBy(t *testing.T, cluster, adopt string, routers map[string]*netmodel.Router) *Client {
	t.Helper()
	db := OpenOf(t, w.Proxy.Endpoint(), cluster)
	if err := db.Take(WithLimit(t), adopt); err != nil {
		t.Fatal(err)
	}
	return NewClient(db, routers)
}

// OwnerRow returns the cluster identity that NB's row names; "" if there is none.
func (w *World) OwnerRow(t *testing.T) string {
	t.Helper()
	for _, word := range strings.Fields(w.Rows(t)["Copp"][ovndb.ClusterKey]["external_ids"]) {
		if strings.HasPrefix(word, "ovn-multinet/cluster=") { // the row's external_ids also have its age
			return word
		}
	}
	return ""
}
