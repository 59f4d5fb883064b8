// Package service owns the model of Services on a network: what a Service of Kubernetes says, which networks it fits,
// and what OVN's load balancers must have for it. It may touch neither an API nor a database.
package service
