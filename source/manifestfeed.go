package source

import (
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// fed has the objects of one kind in the folder. It calls its handler as an informer would.
type fed struct {
	cache.Indexer
	handler cache.ResourceEventHandler
}

// handlers calls several handlers.
type handlers []cache.ResourceEventHandler

func (h handlers) OnAdd(obj any, initial bool) {
	for _, one := range h {
		one.OnAdd(obj, initial)
	}
}

func (h handlers) OnUpdate(old, now any) {
	for _, one := range h {
		one.OnUpdate(old, now)
	}
}

func (h handlers) OnDelete(obj any) {
	for _, one := range h {
		one.OnDelete(obj)
	}
}

// newFeeds returns a feed for each kind.
func newFeeds(changes Changes) map[manifestKind]*fed {
	feeds := map[manifestKind]*fed{}
	for kind := range manifestKinds {
		feeds[kind] = &fed{
			cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace()), cache.ResourceEventHandlerFuncs{},
		}
	}
	feeds[podKind].handler = handlers(ofPods(changes))
	if changes.NAD != nil {
		feeds[nadKind].handler = onNADs(changes.NAD)
	}
	if changes.Nodes != nil {
		feeds[nodeKind].handler = onNodes(changes.Nodes)
	}
	if changes.Policy != nil {
		changed := onKept(func(p *keptPolicy) { changes.Policy(p.Namespace) })
		feeds[policyKind].handler, feeds[clusterPolicyKind].handler = changed, changed
		feeds[namespaceKind].handler = onNamespaces(changes.Namespace)
		feeds[networkedKind].handler = podHandler(changes)
	}
	if changes.Service != nil {
		feeds[serviceObjectKind].handler = onKept(func(s *keptService) { changes.Service(s.Namespace, s.Name) })
	}
	if changes.IPAMClaim != nil {
		feeds[claimKind].handler = onKept(func(c *keptClaim) { changes.IPAMClaim(c.Namespace, c.Name) })
	}
	if changes.Entries != nil {
		feeds[entryKind].handler = onKept(func(*keptEntry) { changes.Entries() })
	}
	return feeds
}

// replace makes these the objects. Of two with one name the first one counts. It returns what calls the handler.
func (f *fed) replace(objects []any) (tell []func()) {
	here := map[string]bool{}
	for _, obj := range objects {
		name := objectKey(obj)
		if here[name] {
			continue
		}
		here[name] = true
		old, there, _ := f.GetByKey(name)
		if there && old == obj {
			continue
		}
		_ = f.Update(obj) // its only error is one of objectKey
		if there {
			tell = append(tell, func() { f.handler.OnUpdate(old, obj) })
		} else {
			tell = append(tell, func() { f.handler.OnAdd(obj, false) })
		}
	}
	for _, name := range f.ListKeys() {
		if old, _, _ := f.GetByKey(name); !here[name] {
			_ = f.Delete(old)
			tell = append(tell, func() { f.handler.OnDelete(old) })
		}
	}
	return tell
}

// feed takes the objects of all files. If two files have an object of one kind and name, the one in the file whose name
// sorts first counts. The handlers are called when all kinds are complete.
func (m *Manifests) feed(statuses []string) {
	var all [manifestKinds][]any
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		for kind, objects := range m.files[name].objects {
			all[kind] = append(all[kind], objects...)
		}
	}
	if m.controlled {
		all[networkedKind] = m.withStatus(all[podKind], statuses)
	}
	all[namespaceKind] = withNamespaces(all[namespaceKind], all[podKind], all[policyKind])
	var tell []func()
	for kind, objects := range all {
		tell = append(tell, m.feeds[manifestKind(kind)].replace(objects)...)
	}
	for _, call := range tell {
		call()
	}
}
