// Package lint owns what manifests are told before they are applied: what the product would refuse of them, and where.
// It reads the manifests alone, and no cluster.
package lint

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/entries"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// Level says how bad a finding is.
type Level string

const (
	// Error is what the product refuses.
	Error Level = "error"
	// Warning is what is served, but does not do what its author may expect.
	Warning Level = "warning"
	// Note is what could not be checked.
	Note Level = "note"
)

// Finding is what there is to say about one object.
type Finding struct {
	File     string `json:"file"`
	Document int    `json:"document"` // in the file, from 1
	Object   string `json:"object"`   // such as "Pod shop/web"; "": the document cannot be read
	Level    Level  `json:"level"`
	Code     uint   `json:"code,omitempty"` // of docs/errors.md; 0: none
	Message  string `json:"message"`
}

// Report is what there is to say about manifests.
type Report struct {
	Findings []Finding `json:"findings"`
	Checked  int       `json:"checked"` // objects that the product reads
	Others   int       `json:"others"`  // objects that it does not read
}

// Count returns how many findings have the level.
func (r *Report) Count(level Level) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Level == level {
			n++
		}
	}
	return n
}

// primary is the name of the first interface of pods.
const primary = "eth0"

// linter collects findings.
type linter struct {
	Report
	nads    map[string]*netmodel.NAD // by ID
	refused map[string]bool          // the IDs of NADs that are refused
	entries []*object
}

// Check checks the objects of manifests against each other. A pod's networks that are not among them are not checked.
func Check(ctx context.Context, m *Manifests) *Report {
	l := &linter{nads: map[string]*netmodel.NAD{}, refused: map[string]bool{}}
	l.Findings = m.unread
	for _, o := range m.objects {
		if o.kind == kindNAD {
			if n := l.readNAD(o); n != nil {
				l.nads[n.ID()] = n
			}
		}
	}
	for _, o := range m.objects {
		if n := l.nads[o.id()]; o.kind == kindNAD && n != nil {
			errors := l.Count(Error)
			l.checkNAD(ctx, o, n)
			l.refused[n.ID()] = l.Count(Error) > errors
		}
	}
	for _, o := range m.objects {
		l.check(ctx, o)
	}
	l.checkGrants(m, l.checkEntries())
	slices.SortStableFunc(l.Findings, byPlace)
	return &l.Report
}

func (l *linter) say(o *object, level Level, format string, values ...any) {
	l.Findings = append(l.Findings, Finding{
		File: o.file, Document: o.document, Object: o.String(), Level: level,
		Message: conf.OneLine(fmt.Sprintf(format, values...), conf.MaxMessage),
	})
}

// refuse says why the product refuses the object, with the next step if the error has one.
func (l *linter) refuse(o *object, err error) {
	code, message, details := conf.Describe(err)
	if details != "" {
		message += ": " + details
	}
	l.say(o, Error, "%s", message)
	if conf.HasCode(err, code) {
		l.Findings[len(l.Findings)-1].Code = code
	}
}

func (l *linter) check(ctx context.Context, o *object) {
	l.Checked++
	switch of := entry.KindOf(o.Kind); {
	case of != nil && o.APIVersion != entry.APIVersion:
		l.say(o, Error, "apiVersion is %q, and this version reads %s", o.APIVersion, entry.APIVersion)
	case of != nil:
		l.entries = append(l.entries, o)
	case o.kind == kindNAD: // checked before
	case o.kind == kindPod:
		l.checkPod(ctx, o, o.pod())
	case o.kind == kindPolicy:
		l.checkPolicy(o)
	case o.kind == kindService:
		m := &o.Metadata
		known := service.NewObject(m.Namespace, m.Name, 0, m.Labels, m.Annotations, o.Spec)
		if known == nil {
			l.Checked--
			l.Others++
		} else if known.Service == nil {
			l.say(o, Error, "%s", known.Refusal)
		}
	default:
		l.Checked--
		l.Others++
	}
}

// checkNAD attaches the network to a pod of its namespace that asks for nothing else.
func (l *linter) checkNAD(ctx context.Context, o *object, n *netmodel.NAD) {
	if err := n.Unusable(); err != nil {
		l.refuse(o, err)
		return
	}
	if id, _ := n.NetworkID(); id == "" && n.File == "" && o.config == "" {
		l.say(o, Note, "spec.config is empty: the configuration is a file of the node, which is not checked")
		return
	}
	requests := []nad.Request{{Namespace: n.Namespace, Name: n.Name, Interface: "net1"}}
	if _, err := nad.Resolve(ctx, n.Namespace, requests, nad.Rules{}, l.get); err != nil {
		l.refuse(o, err)
		last := &l.Findings[len(l.Findings)-1]
		last.Message = strings.TrimPrefix(last.Message, "interface net1: ")
		return
	}
	network, err := n.Network()
	if err != nil {
		return // one of other plugins
	}
	if warning := network.Warning(nil); warning != "" {
		l.say(o, Warning, "%s", warning)
	}
	for _, id := range slices.Sorted(maps.Keys(l.nads)) {
		other, err := l.nads[id].Network()
		if err != nil || id >= n.ID() || other.ID() != network.ID() {
			continue
		}
		if err := network.CheckEqual(other); err != nil {
			l.say(o, Error, "it describes the same network %s as %s, but differently: %v", network.ID(), id, err)
		}
	}
}

func (l *linter) get(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
	if n := l.nads[namespace+"/"+name]; n != nil {
		return n, nil
	}
	return nil, netmodel.ErrNotFound
}

// checkPod attaches the networks of a pod, or of a pod template, as an agent would.
func (l *linter) checkPod(ctx context.Context, o *object, p *pod) {
	for _, key := range slices.Sorted(maps.Keys(conf.NetworkAnnotations(o.Metadata.Annotations))) {
		if o.Kind != "Pod" && p.annotations[key] == "" {
			l.say(o, Warning,
				"annotation %s is on the %s, where nobody reads it: write it into the metadata of its pod template", key, o.Kind)
		}
	}
	annotations := conf.NetworkAnnotations(p.annotations)
	requests, err := nad.ParseRequests(annotations, o.Metadata.Namespace, primary)
	if err != nil {
		l.refuse(o, err)
		return
	}
	if ignored := nad.IgnoredKey(annotations); ignored != "" {
		l.say(o, Warning, "%s", ignored)
	}
	if p.hostNetwork && len(requests) > 0 {
		l.say(o, Warning, "hostNetwork: a pod in the network of its node gets no further networks")
	}
	var known []nad.Request
	for i := range requests {
		switch r := &requests[i]; {
		case l.refused[r.String()]:
			l.say(o, Error, "network %s is refused: see its NetworkAttachmentDefinition", r)
		case l.nads[r.String()] == nil:
			l.missing(o, r.String(), "what the pod asks of it is not checked")
		default:
			known = append(known, *r)
		}
	}
	attachments, err := nad.Resolve(ctx, o.Metadata.Namespace, known, nad.Rules{}, l.get)
	if err == nil && len(known) == len(requests) {
		_, err = nad.ParseRouting(annotations, attachments, primary)
	}
	if err != nil {
		l.refuse(o, err)
	}
}

// missing says that a network is not in the files. One of the same name in another namespace is a sign of a mistake.
func (l *linter) missing(o *object, id, consequence string) {
	_, name, _ := strings.Cut(id, "/")
	for _, other := range slices.Sorted(maps.Keys(l.nads)) {
		if l.nads[other].Name == name {
			l.say(o, Warning, "network %s is not in these files, but %s is: write its namespace if you mean that one", id, other)
			return
		}
	}
	l.say(o, Note, "network %s is not in these files, so %s", id, consequence)
}

func (l *linter) checkPolicy(o *object) {
	namespace, version := o.Metadata.Namespace, policy.APIVersion
	if o.Kind == policy.ClusterKind {
		namespace, version = "", policy.ClusterAPIVersion
	}
	if o.APIVersion != version {
		l.say(o, Error, "apiVersion is %q, and this version reads %s", o.APIVersion, version)
		return
	}
	if _, ours := o.Metadata.Annotations[policy.ForAnnotation]; !ours && namespace == "" {
		l.Checked--
		l.Others++
		return // it is about the pods' first interfaces
	}
	known := policy.NewObject(namespace, o.Metadata.Name, 0, o.Metadata.Annotations, o.Spec, len(o.Spec))
	if known.Policy == nil {
		l.say(o, Error, "%s", known.Refusal)
		return
	}
	for _, network := range known.Policy.Networks {
		if network != policy.AllNetworks && l.nads[network] == nil {
			l.missing(o, network, "whether it exists is not checked")
		}
	}
}

// checkGrants checks whether networks may use the physical networks and the routers of the cluster that are among the
// objects.
func (l *linter) checkGrants(m *Manifests, config configfile.Config) {
	for _, o := range m.objects {
		n := l.nads[o.id()]
		if o.kind != kindNAD || n == nil || l.refused[n.ID()] {
			continue
		}
		network, err := n.Network()
		if err != nil {
			continue // one of other plugins
		}
		if len(config.Physical[network.Physical]) > 0 && network.Physical != "" {
			err = config.Physical.Check(n.Namespace, network)
		}
		if r := config.Routers[network.RouterName()]; err == nil && r != nil {
			err = r.CheckJoin(network)
		}
		if err != nil {
			l.refuse(o, err)
		}
	}
}

// checkEntries checks the operator's objects as the controller joins them, and returns what they say. A pool needs its
// router.
func (l *linter) checkEntries() configfile.Config {
	var all []*entry.Object
	routers := map[string]bool{}
	for _, o := range l.entries {
		one := &entry.Object{Kind: entry.KindOf(o.Kind), Name: o.Metadata.Name, Spec: entry.Canonical(o.Spec)}
		all = append(all, one)
		routers[one.Kind.Name+" "+one.Entry()] = true
	}
	config, why := entries.Together(all)
	for i, o := range l.entries {
		var spec struct {
			Router string `json:"router"`
		}
		_ = json.Unmarshal(o.Spec, &spec) // Refused says what is wrong with it
		switch reason := why[all[i].ID()]; {
		case reason == "":
		case o.Kind == "AddressPool" && spec.Router != "" && !routers["Router "+spec.Router]:
			l.say(o, Note, "router %s is not in these files, so the pool is not checked", spec.Router)
		default:
			l.say(o, Error, "%s", reason)
		}
	}
	return config
}

// byPlace sorts by file and document.
func byPlace(a, b Finding) int {
	if c := strings.Compare(a.File, b.File); c != 0 {
		return c
	}
	return a.Document - b.Document
}
