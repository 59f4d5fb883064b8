package policies

import (
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

const (
	kindMeter = "policy-meter" // value of nbrows.KeyKind
	// usedBy is the prefix of a key in the external_ids of a meter, with a network whose ACLs name the meter.
	usedBy = "ovn-multinet/policy-network:"
	// severity makes ovn-controller log at its level INFO, which it does by default.
	severity = "info"
)

// setLog has OVN log the packets that the ACL denies. All ACLs of a namespace name one meter, so that a namespace has
// one limit, however many policies and networks it makes. The line that ovn-controller writes has no other word of the
// row than its name. So the name ends with the row key, which tells policy and network.
func setLog(row *nb.ACL, namespace string) {
	name := strings.NewReplacer(`"`, "'", `\`, "/").Replace(*row.Name) // a program finds the end of the name
	name = strings.TrimSpace(cut(name, maxACLName-1-len(row.UUID))) + " " + row.UUID
	level, meter := severity, meterName(namespace)
	row.Name, row.Log, row.Severity, row.Meter = &name, true, &level, &meter
}

func meterName(namespace string) string {
	if namespace == "" {
		return "ovn-multinet denied by ClusterNetworkPolicies"
	}
	return "ovn-multinet denied by policies of " + namespace
}

// readMeter returns the operations that read the meter of a namespace and its band.
func readMeter(namespace string) []ovsdb.Operation {
	return []ovsdb.Operation{
		ovndb.Select(nb.MeterTable, ovndb.MeterKey(namespace)),
		ovndb.Select(nb.MeterBandTable, ovndb.MeterBandKey(namespace)),
	}
}

// setMeter makes the meter of a namespace the wanted one. Several networks may use it, so it lists them, and the last
// one deletes it.
func (h *rows) setMeter(b *nbrows.Batch, w *Wanted, logs bool) {
	namespace, key := w.Set.Namespace, usedBy+w.Set.Network
	meterKey, bandKey := ovndb.MeterKey(namespace), ovndb.MeterBandKey(namespace)
	ids := map[string]string{}
	if h.meter != nil {
		ids = maps.Clone(h.meter.ExternalIDs)
	}
	if delete(ids, key); logs {
		ids[nbrows.KeyKind], ids[keyNamespace], ids[key] = kindMeter, namespace, ""
		nbrows.Put(b, nb.MeterBandTable, bandKey, h.band, &nb.MeterBand{
			UUID: bandKey, Action: "drop", Rate: w.DeniedRate, BurstSize: w.DeniedRate,
			ExternalIDs: map[string]string{nbrows.KeyKind: kindMeter},
		})
	} else if h.meter == nil || maps.Equal(ids, h.meter.ExternalIDs) {
		return // the network does not use the meter
	}
	if h.meter != nil && !maps.Equal(ids, h.meter.ExternalIDs) {
		b.Add(ovndb.HasMap(nb.MeterTable, meterKey, "external_ids", h.meter.ExternalIDs))
	}
	used := slices.ContainsFunc(nbrows.SortedKeys(ids), func(id string) bool { return strings.HasPrefix(id, usedBy) })
	if !used {
		b.Add(ovndb.Delete(nb.MeterTable, meterKey)) // the database deletes its band
		return
	}
	nbrows.Put(b, nb.MeterTable, meterKey, h.meter, &nb.Meter{
		UUID: meterKey, Name: meterName(namespace), Unit: "pktps", Bands: []string{bandKey}, ExternalIDs: ids,
	})
}
