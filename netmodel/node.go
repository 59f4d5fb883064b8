package netmodel

// Node is a node of the cluster, as far as it matters here. Its labels are not to be changed.
type Node struct {
	Name   string
	Labels map[string]string
}
