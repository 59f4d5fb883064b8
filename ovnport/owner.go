package ovnport

import (
	"errors"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// ExplainNotOwner adds the code to the error of a write to an NB of another cluster, and returns other errors as they
// are.
func ExplainNotOwner(err error) error {
	no, ok := errors.AsType[*ovndb.NotOwner](err)
	switch {
	case !ok:
		return err
	case no.Owner == "":
		return conf.Errorf(conf.CodeTryAgain,
			"ovn-multinet-controller takes NB when it leads: is it running, what does its log say?", "%w", no)
	}
	return conf.Errorf(conf.CodeTryAgain,
		"give the agent the NB of its own cluster (--nb-endpoints); where its cluster takes the place of cluster "+no.Owner+
			", start the controller with --adopt-cluster="+no.Owner,
		"%s belongs to cluster %s, this agent is of cluster %s", no.Database, no.Owner, no.Cluster)
}
