// Package controller owns the work of the controller: the queue of changes with its fair turns and budgets, the election
// among the NADs of one network, the states that are written onto NADs, the identity of the cluster that NB belongs to,
// and the garbage collection of what deleted nodes have. It writes rows through package ovnnet only.
package controller
