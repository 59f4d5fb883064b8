// Package controller owns the work of the leading controller: the queue of changes, the election among the NADs of one
// network, the states of NADs, and the check of NB's owner. It writes the rows of networks, routers and gateways only
// through package ovnnet and its subpackages.
package controller
