// Package plugin owns the life cycle of a CNI call: it reads the call, asks the agent for a plan, carries out the
// plan, writes the journal, and rolls back a failed ADD. It may know neither Kubernetes nor OVSDB.
package plugin
