// Package plugin owns the life cycle of a CNI call: it reads the call, asks the agent for a plan, has the plan
// carried out, keeps the journal for it, and undoes what failed. It may know neither Kubernetes nor OVSDB.
package plugin
