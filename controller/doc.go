// Package controller owns the work of the leading controller: the queue of changes with its turns and budgets, the
// election among the NADs of one network, the states of NADs, the check of NB's owner, and the garbage collection of
// the rows of deleted nodes. It writes the rows of networks, routers and gateways only through package ovnnet and its
// subpackages.
package controller
