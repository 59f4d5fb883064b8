// Package denied owns the lines of the node's ovn-controller about packets that network policies have denied: it reads
// them from its log file, and says in the agent's log which pods they are about. It writes neither files nor rows.
package denied
