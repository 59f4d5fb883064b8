// Package delegate owns the hands, all that needs root on the node: it answers the runtime's CNI calls, carries a
// plan out in the pod's network namespace, undoes it in reverse and keeps the journal for it; it may know neither
// Kubernetes nor OVSDB and trusts no plan that it has not checked.
package delegate
