// Package policy owns the model of network policies: what a MultiNetworkPolicy says, which groups of ports it needs,
// and the ACLs of these groups. It may touch neither an API nor a database.
package policy
