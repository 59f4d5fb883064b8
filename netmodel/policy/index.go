package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Index says which groups the ports of pods belong to, on one network: those of the policies of one namespace, or
// those of ClusterNetworkPolicies. The controller writes it, and the agents read it. A port is inserted only while the
// index has the revision that its groups were chosen by.
type Index struct {
	Entries []Entry
	// ChangedLabels has pods whose labels have changed: by UID, the Hash of the labels that the controller knows.
	// ClusterNetworkPolicies have it in the rows of namespaces.
	ChangedLabels map[string]string
}

// Namespace is what the controller knows of a namespace, for the groups of ClusterNetworkPolicies.
type Namespace struct {
	Labels        map[string]string
	ChangedLabels map[string]string // as in Index
	// Version is the resource version that the labels are of. It is not part of the revision. A manifest has none.
	Version string
}

// Entry is one group.
type Entry struct {
	// Group is the row key of the Port_Group; "": the selector has the name of a port, and the entry says that a pod
	// with this name needs the group of its number.
	Group string `json:"group,omitempty"`
	Selector
	// Here tells that pods of the index's own namespace are selected. An index of ClusterNetworkPolicies does not have
	// it.
	Here bool `json:"here,omitempty"`
}

// Keys of the external_ids of the row that has an index.
const (
	entriesKey          = "ovn-multinet/policy-groups"
	labelsKey           = "ovn-multinet/namespace-labels"
	versionKey          = "ovn-multinet/namespace-version"
	changedLabelsPrefix = "ovn-multinet/relabelled:"
)

// WaitingRevision is the revision of a row whose policies are not written yet. It has no entries, so it cannot be
// decoded.
const WaitingRevision = "waiting"

// Encode returns the index as pairs of external_ids, and its revision.
func (x *Index) Encode() (ids map[string]string, revision string, err error) {
	return encodeWith(entriesKey, x.Entries, x.ChangedLabels)
}

// Encode returns the namespace as pairs of external_ids, and its revision.
func (n *Namespace) Encode() (ids map[string]string, revision string, err error) {
	ids, revision, err = encodeWith(labelsKey, n.Labels, n.ChangedLabels)
	if n.Version != "" && err == nil {
		ids[versionKey] = n.Version
	}
	return ids, revision, err
}

func encodeWith(
	key string, value any, changedLabels map[string]string,
) (ids map[string]string, revision string, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, "", err
	}
	ids = map[string]string{key: string(text)}
	for uid, hash := range changedLabels {
		ids[changedLabelsPrefix+uid] = hash
	}
	return ids, Hash(ids), nil
}

// Decode reads an index from external_ids.
func Decode(ids map[string]string) (*Index, error) {
	x := &Index{}
	var err error
	x.ChangedLabels, err = decodeWith(entriesKey, ids, &x.Entries)
	return x, err
}

// DecodeNamespace reads a namespace from external_ids.
func DecodeNamespace(ids map[string]string) (*Namespace, error) {
	n := &Namespace{Version: ids[versionKey]}
	var err error
	n.ChangedLabels, err = decodeWith(labelsKey, ids, &n.Labels)
	return n, err
}

func decodeWith(key string, ids map[string]string, value any) (changedLabels map[string]string, err error) {
	if err := json.Unmarshal([]byte(ids[key]), value); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	changedLabels = map[string]string{}
	for id, hash := range ids {
		if uid, ok := strings.CutPrefix(id, changedLabelsPrefix); ok {
			changedLabels[uid] = hash
		}
	}
	return changedLabels, nil
}

// Matcher tells which groups the ports of a namespace's pods belong to, on one network.
type Matcher struct {
	groups        []group
	names         []group                      // of pods that need the group of a number
	numbers       map[Selector]map[string]bool // the ports with a group, by the selector with the name
	changedLabels []map[string]string
}

type group struct {
	key  string
	here bool // pods of the namespace may belong to it
	pods labels.Selector
	of   Selector
}

// matches reports whether a pod belongs to the group. port is one that its selector may have.
func (g *group) matches(podLabels map[string]string, port func(string) bool) bool {
	return g.here && (g.of.Port == "" || port(g.of.Port)) && g.pods.Matches(labels.Set(podLabels))
}

// NewMatcher reads the external_ids of the rows that concern a namespace's pods on a network. own is the index of the
// namespace's policies, and cluster the index of ClusterNetworkPolicies. Either may be nil. namespace is the row of
// the namespace; it must be there if cluster is. Groups for other namespaces are not part of own.
func NewMatcher(own, cluster, namespace map[string]string) (*Matcher, error) {
	m := &Matcher{numbers: map[Selector]map[string]bool{}}
	if own != nil {
		x, err := Decode(own)
		if err != nil {
			return nil, err
		}
		m.changedLabels = append(m.changedLabels, x.ChangedLabels)
		for _, e := range x.Entries {
			if e.Here {
				if err := m.add(&e, true); err != nil {
					return nil, err
				}
			}
		}
	}
	if cluster == nil {
		return m, nil
	}
	x, err := Decode(cluster)
	if err != nil {
		return nil, err
	}
	n, err := DecodeNamespace(namespace)
	if err != nil {
		return nil, err
	}
	m.changedLabels = append(m.changedLabels, n.ChangedLabels)
	for _, e := range x.Entries {
		of, err := labels.Parse(e.Namespaces)
		if err != nil {
			return nil, fmt.Errorf("selector %q: %w", e.Namespaces, err)
		}
		if err := m.add(&e, of.Matches(labels.Set(n.Labels))); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Matcher) add(e *Entry, here bool) error {
	pods, err := labels.Parse(e.Pods)
	if err != nil {
		return fmt.Errorf("selector %q: %w", e.Pods, err)
	}
	g := group{e.Group, here, pods, e.Selector}
	if e.Group == "" {
		m.names = append(m.names, g)
		return nil
	}
	m.groups = append(m.groups, g)
	if name, number := cutNumber(e.Port); number != 0 {
		of := e.withPort(name)
		if m.numbers[of] == nil {
			m.numbers[of] = map[string]bool{}
		}
		m.numbers[of][e.Port] = true
	}
	return nil
}

// Stale reports whether the controller knows other labels of a pod than these.
func (m *Matcher) Stale(uid string, podLabels map[string]string) bool {
	return slices.ContainsFunc(m.changedLabels, func(changedLabels map[string]string) bool {
		hash, ok := changedLabels[uid]
		return ok && hash != Hash(podLabels)
	})
}

// Match returns the groups that the ports of a pod with these labels and named ports belong to, and the other groups.
func (m *Matcher) Match(podLabels map[string]string, ports []string) (in, out []string) {
	for _, g := range m.groups {
		if g.matches(podLabels, func(port string) bool { return slices.Contains(ports, port) }) {
			in = append(in, g.key)
		} else {
			out = append(out, g.key)
		}
	}
	return in, out
}

// Missing returns a named port of a pod that policies use by its name, and that has no group yet; "": there is none.
// numbers is how many numbers have a group.
func (m *Matcher) Missing(podLabels map[string]string, ports []string) (missing string, numbers int) {
	has := map[string]string{}
	for _, port := range ports {
		name, _ := cutNumber(port)
		has[name] = port
	}
	for _, g := range m.names {
		port, known := has[g.of.Port], m.numbers[g.of]
		if port != "" && !known[port] && g.matches(podLabels, func(string) bool { return true }) {
			return port, len(known)
		}
	}
	return "", 0
}

// Hash is a short hash of labels, or of other pairs.
func Hash(of map[string]string) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(h, "%s\x00%s\x00", key, of[key])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
