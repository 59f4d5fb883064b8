// Package placement owns which nodes have OVN's databases when the chart runs OVN: it writes the list of members into a
// ConfigMap and labels the nodes. It speaks to no database.
package placement
