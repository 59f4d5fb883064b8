// Package members owns the list of the nodes that have OVN's databases when the chart runs OVN: how the list is written
// into a ConfigMap and read from its mounted folder. It knows nothing of the databases themselves.
package members
