// Package ended owns the rows of NB that list connections which a change has ended: one row for each node that may
// still track them, and one row for all nodes of a router or network that has Services. It may not touch the rows that
// translate addresses.
package ended
