package netmodel

// Node is a node of the cluster, with what the project uses of it. Nobody may change the labels.
type Node struct {
	Name   string
	Labels map[string]string
}
