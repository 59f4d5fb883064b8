// Package policies owns the rows of network policies in NB: the groups of ports, their ACLs, and the rows that tell
// agents which groups a pod's port belongs to, and which security profiles the operator allows. It may not touch
// switches, routers and ports.
package policies
