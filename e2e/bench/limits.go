package bench

// Limits are the most that each count may be. A change that makes a count better lowers its limit here.
// `make bench-quick` fails for each count that is over its limit, by name.
var Limits = map[string]float64{
	"plugin, bytes":                       6_000_000,
	"installer, bytes":                    6_000_000,
	"agent, bytes":                        38_700_000,
	"controller, bytes":                   38_700_000,
	"plugin, allocations before main":     300,
	"installer, allocations before main":  200,
	"plain pod, files opened for writing": 0,
	"plain pod, connections":              0,
	"plain pod, execs":                    0,
	"plain pod, fsyncs":                   0,
	"ADD k=8, execs":                      0,
	"ADD k=8, fsyncs of the plugin":       0,
	"ADD with a delegate, fsyncs":         6,
	"DEL k=8, fsyncs of the plugin":       0,
	"ADD k=8, netlink requests":           40,
	"DEL k=8, netlink requests":           17, // two for each veth, one for their group; none lists the links of the node
	"ADD k=8, transactions in NB":         1,
	"ADD k=8, transactions in OVS":        1,
	"ADD k=8, reads in NB":                0,
	"DEL k=8, transactions in NB":         1,
	"DEL k=8, transactions in OVS":        1,
	"ADD k=8, bytes from NB":              740, // three for the result of each guard
	"DEL k=8, bytes from NB":              200,
	"ADD k=8, connections of the plugin":  1,
	"DEL k=8, connections of the plugin":  1,

	"ADD with policies, transactions in NB":  1,
	"ADD with policies, reads in NB":         0,
	"ADD with policies, operations in NB":    15, // 10 without policies
	"ADD with policies, bytes from NB":       190,
	"first ADD with policies, bytes from NB": 2_500,

	"endpoint of a Service, transactions in NB":                  1,
	"endpoint of a Service, reads in NB":                         4, // one for the list of ended connections
	"endpoint of a Service, operations in NB":                    21,
	"endpoint of a Service with TCP and UDP, rows changed in NB": 2,
	"endpoint of a Service, bytes to NB":                         6_400,
	"endpoint of a Service, bytes from NB":                       4_000,
}
