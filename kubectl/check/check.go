package check

import "strings"

// Check judges what the API server says of the cluster.
func (c *Cluster) Check(p Plan) (all []Finding) {
	all = append(all, c.unread...)
	all = append(all, c.checkAPI()...)
	all = append(all, c.checkNodes()...)
	all = append(all, c.checkDistribution(p)...)
	all = append(all, c.checkPrograms()...)
	all = append(all, c.checkSecond()...)
	all = append(all, c.checkNamespace()...)
	all = append(all, c.checkEndpoints(p)...)
	all = append(all, c.checkSubnets(p)...)
	all = append(all, c.checkOurs(p)...)
	all = append(all, c.checkPodNetworks()...)
	if len(c.Leftover) > 0 {
		names := strings.Join(c.Leftover, " ")
		all = append(all, warning("inspection", "if no other check runs now: kubectl delete namespace "+names,
			"an earlier check was killed before it deleted %s", names))
	}
	return all
}
