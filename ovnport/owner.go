package ovnport

import (
	"errors"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// ExplainNotOwner adds the code to the error of a write to an NB of another cluster, or to an NB that was replaced, and
// returns other errors as they are.
func ExplainNotOwner(err error) error {
	if replaced, ok := errors.AsType[*ovndb.Replaced](err); ok {
		return conf.Errorf(conf.CodeTryAgain,
			"the ADD succeeds when the ports of the running pods are back in it, within a minute", "%w", replaced)
	}
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
