package netmodel

// Node is a node of the cluster, with what the project uses of it. The labels must not be changed.
type Node struct {
	Name   string
	Labels map[string]string
}
