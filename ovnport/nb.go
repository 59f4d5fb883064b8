package ovnport

import (
	"context"
	"errors"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// NB writes ports into OVN's Northbound database.
type NB struct {
	db     *ovndb.DB
	group  groupCommit
	epochs epochs
}

// NewNB takes the connection, which all pods of a node use.
func NewNB(db *ovndb.DB) *NB {
	return &NB{db: db, group: groupCommit{db: db}, epochs: newEpochs()}
}

// Answers returns an error unless the database answers now.
func (n *NB) Answers(ctx context.Context) error {
	err := n.db.Answers(ctx)
	if _, other := errors.AsType[*ovndb.NotOwner](err); other {
		return ExplainNotOwner(err)
	}
	if err != nil {
		return unreachable(err)
	}
	return nil
}

// explain gives the code to the errors of a database that does not answer, or belongs to another cluster.
func explain(err error) error {
	if _, away := errors.AsType[*ovndb.Unreachable](err); away {
		return unreachable(err)
	}
	return ExplainNotOwner(err)
}

// unreachable is the error, with its code, of a database that does not answer.
func unreachable(err error) error {
	todo := "is OVN's Northbound database up and reachable from this node?"
	if away, ok := errors.AsType[*ovndb.Unreachable](err); ok && away.TLS() {
		todo = "correct the certificates; new files take effect without a restart of the agent"
	}
	return conf.Errorf(conf.CodeTryAgain, todo, "%w", err)
}

// pause delays a retry while the database goes down; false when ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// read reads the ports and the claims that have the keys, in one transaction.
func (n *NB) read(ctx context.Context, keys []string) (map[string]*nb.LogicalSwitchPort, map[string]*nb.Copp, error) {
	var ops []ovsdb.Operation
	for _, key := range keys {
		ops = append(ops, ovndb.Select(nb.LogicalSwitchPortTable, key), ovndb.Select(nb.CoppTable, key))
	}
	results, err := n.db.Transact(ctx, ops)
	if err != nil {
		return nil, nil, err
	}
	ports, claims := map[string]*nb.LogicalSwitchPort{}, map[string]*nb.Copp{}
	for i, result := range results {
		if i%2 == 1 {
			rows, err := ovndb.Rows[nb.Copp](n.db, result)
			if err != nil {
				return nil, nil, err
			}
			for _, row := range rows {
				claims[row.UUID] = row
			}
			continue
		}
		rows, err := ovndb.Rows[nb.LogicalSwitchPort](n.db, result)
		if err != nil {
			return nil, nil, err
		}
		for _, row := range rows {
			ports[row.UUID] = row
		}
	}
	return ports, claims, nil
}
