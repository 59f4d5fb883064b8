package source

import "sync"

// Limits of the policies that are kept in memory, by policy.Object.Size. Of a policy beyond them, the source keeps what
// policy.Object.Without leaves.
const (
	maxCachedNamespace = 2 << 20
	maxCached          = 32 << 20
)

// cachedPolicies counts the bytes of the MultiNetworkPolicies that the informer keeps.
type cachedPolicies struct {
	mu    sync.Mutex
	sizes map[string]map[string]int // by namespace and name
	sums  map[string]int            // by namespace
	all   int
}

// keep returns what the informer keeps of a policy.
func (h *cachedPolicies) keep(raw *rawObject) *keptPolicy {
	known := keepPolicy(raw)
	if known.object == nil { // a bookmark of the watch
		return known
	}
	size := known.object.Size
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(raw.Namespace, raw.Name, 0)
	if h.sums[raw.Namespace]+size > maxCachedNamespace || h.all+size > maxCached {
		known.object = known.object.Without()
		return known
	}
	h.set(raw.Namespace, raw.Name, size)
	return known
}

// set notes the size of a policy. Callers hold the lock.
func (h *cachedPolicies) set(namespace, name string, size int) {
	if h.sizes == nil {
		h.sizes, h.sums = map[string]map[string]int{}, map[string]int{}
	}
	more := size - h.sizes[namespace][name]
	h.sums[namespace] += more
	h.all += more
	if size > 0 {
		if h.sizes[namespace] == nil {
			h.sizes[namespace] = map[string]int{}
		}
		h.sizes[namespace][name] = size
		return
	}
	if delete(h.sizes[namespace], name); len(h.sizes[namespace]) == 0 {
		delete(h.sizes, namespace)
		delete(h.sums, namespace)
	}
}

// gone forgets a policy that was deleted.
func (h *cachedPolicies) gone(obj any) {
	if p, ok := lastKnown(obj).(*keptPolicy); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.set(p.Namespace, p.Name, 0)
	}
}
