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

// Index says which groups the ports of a namespace's pods belong to, on one network. The controller writes it, and the
// agents read it. A port is inserted only while the index has the revision that its groups were chosen by.
type Index struct {
	Entries []Entry
	// Relabelled has pods whose labels have changed: by UID, the Hash of the labels that the controller knows.
	Relabelled map[string]string
}

// Entry is one group.
type Entry struct {
	Group string `json:"group"` // the row key of the Port_Group
	Selector
	// Here tells that pods of the index's own namespace are selected.
	Here bool `json:"here,omitempty"`
}

// Keys of the external_ids of the row that has an index.
const (
	entriesKey       = "ovn-multinet/policy-groups"
	relabelledPrefix = "ovn-multinet/relabelled:"
)

// Encode returns the index as pairs of external_ids, and its revision.
func (x *Index) Encode() (ids map[string]string, revision string, err error) {
	text, err := json.Marshal(x.Entries)
	if err != nil {
		return nil, "", err
	}
	ids = map[string]string{entriesKey: string(text)}
	for uid, hash := range x.Relabelled {
		ids[relabelledPrefix+uid] = hash
	}
	return ids, Hash(ids), nil
}

// Decode reads an index from external_ids.
func Decode(ids map[string]string) (*Index, error) {
	x := &Index{Relabelled: map[string]string{}}
	for key, value := range ids {
		if uid, ok := strings.CutPrefix(key, relabelledPrefix); ok {
			x.Relabelled[uid] = value
		}
	}
	if err := json.Unmarshal([]byte(ids[entriesKey]), &x.Entries); err != nil {
		return nil, fmt.Errorf("%s: %w", entriesKey, err)
	}
	return x, nil
}

// Matcher tells which groups of an index the ports of a pod belong to.
type Matcher struct {
	Revision   string
	relabelled map[string]string
	groups     []group
}

type group struct {
	key  string
	pods labels.Selector
}

// NewMatcher reads the external_ids of an index. Groups for other namespaces are not part of it.
func NewMatcher(ids map[string]string, revision string) (*Matcher, error) {
	x, err := Decode(ids)
	if err != nil {
		return nil, err
	}
	m := &Matcher{Revision: revision, relabelled: x.Relabelled}
	for _, e := range x.Entries {
		if !e.Here {
			continue
		}
		pods, err := labels.Parse(e.Pods)
		if err != nil {
			return nil, fmt.Errorf("selector %q: %w", e.Pods, err)
		}
		m.groups = append(m.groups, group{e.Group, pods})
	}
	return m, nil
}

// Stale tells whether the controller knows other labels of a pod than these.
func (m *Matcher) Stale(uid string, podLabels map[string]string) bool {
	hash, ok := m.relabelled[uid]
	return ok && hash != Hash(podLabels)
}

// Match returns the groups that the ports of a pod with these labels belong to, and the other groups.
func (m *Matcher) Match(podLabels map[string]string) (in, out []string) {
	for _, g := range m.groups {
		if g.pods.Matches(labels.Set(podLabels)) {
			in = append(in, g.key)
		} else {
			out = append(out, g.key)
		}
	}
	return in, out
}

// Hash is a short hash of labels, or of other pairs.
func Hash(of map[string]string) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(h, "%s\x00%s\x00", key, of[key])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
