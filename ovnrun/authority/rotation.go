package authority

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// RotateAnnotation on the Secret asks for a rotation: all programs get certificates of a new authority, and those of
// the former one end. The leader removes the annotation when the rotation begins.
const RotateAnnotation = "ovn-multinet/rotate"

// rotationAnnotation on the Secret says since when a rotation is under way (RFC 3339).
const rotationAnnotation = "ovn-multinet/rotation"

// unknownAnnotation on the Secret says until when certificates may be valid whose holders are not noted, because an
// older version has signed them (RFC 3339).
const unknownAnnotation = "ovn-multinet/holders-unknown-until"

// Further keys of the Secret. Each line of the first two is "<role>/<node> <start of the UID of the Node>".
const (
	holdersKey     = "holders"      // who may have a certificate of the present authority
	nextHoldersKey = "next-holders" // the same of the next one
	distrustedKey  = "distrusted"   // the nodes that were distrusted when the present authority was made
)

// Keys of the ConfigMap for the operator.
const (
	RotationKey   = "rotation"       // since when a rotation is under way, and until when the former authority is trusted
	DistrustedKey = "without-access" // the distrusted nodes whose certificates have ended
)

const (
	// publishedFor is how long a new authority is trusted before it signs, when the former one is just old.
	publishedFor = time.Hour
	// rotatedAfter is the same in a rotation. All programs watch the ConfigMap. One that does not see the change within
	// this time refuses servers with new certificates until it does.
	rotatedAfter = time.Minute
	// rotatedFor is how long the former authority is trusted at most after the new one begins to sign: a node that is
	// off gets its certificate when it is back.
	rotatedFor = 10 * time.Minute
	// readWithin is how long a program may take to read a certificate that it has got.
	readWithin = 30 * time.Second
)

// turning is what a turn of the authority depends on beside the Secret.
type turning struct {
	nodes   []netmodel.Node
	life    time.Duration                        // of certificates
	members func() (map[string]bool, error)      // the nodes with OVN's databases
	settled func(whole bool, now time.Time) bool // reports whether all have had their certificates for readWithin
	holder  asker                                // gets a certificate now; nobody if the role is ""
}

// turned is what comes of it.
type turned struct {
	signs    pair
	bundle   []byte // what is trusted; the authority that signs is the first one
	changed  bool   // the Secret has to be written
	rotating bool
	notes    map[string]string // further keys of the ConfigMap
	said     []string          // what has happened, for the log
}

// published is the content of the ConfigMap.
func (t *turned) published() map[string]string {
	data := map[string]string{BundleKey: string(t.bundle)}
	maps.Copy(data, t.notes)
	return data
}

// turn brings the Secret forward. An authority that has used two thirds of its life gets a successor; both are trusted
// until the end of the first one's life. A rotation does the same within minutes: the successor is trusted, then it
// signs, and when all nodes have certificates of it, the former authority is trusted no more.
func turn(secret *corev1.Secret, now time.Time, of turning) (t turned, err error) {
	r := rotation{turning: of, secret: secret, now: now}
	if len(secret.Data[currentKeys[0]]) == 0 {
		if r.current, err = newPair(now); err != nil {
			return turned{}, err
		}
		for _, key := range []string{nextKeys[0], nextKeys[1], nextHoldersKey} {
			delete(secret.Data, key)
		}
		secret.Data[holdersKey] = []byte{}
		r.noteDistrusted()
		r.noteHolder()
		r.changed = true
		return r.result(), r.current.put(secret.Data, currentKeys)
	}
	if r.current, err = parsePair(secret.Data, currentKeys); err != nil {
		return turned{}, err
	}
	if len(secret.Data[nextKeys[0]]) > 0 {
		next, err := parsePair(secret.Data, nextKeys)
		if err != nil {
			return turned{}, err
		}
		r.next = &next
	}
	if since := secret.Annotations[rotationAnnotation]; since != "" {
		if r.since, err = time.Parse(time.RFC3339, since); err != nil {
			return turned{}, fmt.Errorf("annotation %s: %w", rotationAnnotation, err)
		}
	}
	if _, noted := secret.Data[holdersKey]; !noted {
		r.annotate(unknownAnnotation, now.Add(of.life).Format(time.RFC3339))
		secret.Data[holdersKey] = []byte{}
	}
	if err := r.begin(); err != nil {
		return turned{}, err
	}
	if err := r.end(); err != nil {
		return turned{}, err
	}
	r.noteHolder()
	return r.result(), nil
}

// rotation is a Secret in the middle of a turn.
type rotation struct {
	turning
	secret  *corev1.Secret
	now     time.Time
	current pair
	next    *pair
	since   time.Time // zero: no rotation is under way
	changed bool
	said    []string
}

// begin makes the next authority if the present one is old or a rotation is wanted.
func (r *rotation) begin() error {
	reason := r.reason()
	old := !r.now.Before(r.current.cert.NotAfter.Add(-authorityLife / 3))
	if r.next != nil || reason == "" && !old {
		if r.next != nil && reason != "" && r.since.IsZero() {
			// An old authority has its successor already: end that turn at once, and begin another one after it. The
			// successor may have signed for those who are to lose their access.
			r.start("a rotation is wanted, and the next authority is there already")
		}
		return nil
	}
	next, err := newPair(r.now)
	if err != nil {
		return err
	}
	r.next, r.changed = &next, true
	if reason != "" {
		delete(r.secret.Annotations, RotateAnnotation)
		r.noteDistrusted()
		r.start(reason)
	}
	return next.put(r.secret.Data, nextKeys)
}

func (r *rotation) start(reason string) {
	r.since = r.now.Truncate(time.Second)
	r.annotate(rotationAnnotation, r.since.Format(time.RFC3339))
	r.said = append(r.said, "all certificates of OVN are replaced by those of a new authority: "+reason)
}

func (r *rotation) annotate(key, value string) {
	if r.secret.Annotations == nil {
		r.secret.Annotations = map[string]string{}
	}
	r.secret.Annotations[key], r.changed = value, true
}

// end makes the next authority the only one, when the former one has no time left or is not needed any more.
func (r *rotation) end() error {
	if r.next == nil {
		return nil
	}
	if r.now.Before(r.current.cert.NotAfter) {
		if r.since.IsZero() || !r.signing() {
			return nil
		}
		whole, err := r.whole()
		if err != nil {
			return err
		}
		if !r.settled(whole, r.now) && r.now.Before(r.last()) {
			return nil
		}
	}
	r.current, r.next, r.changed = *r.next, nil, true
	data := r.secret.Data
	data[holdersKey] = append([]byte{}, data[nextHoldersKey]...)
	delete(r.secret.Annotations, unknownAnnotation)
	for _, key := range []string{nextKeys[0], nextKeys[1], nextHoldersKey} {
		delete(data, key)
	}
	if !r.since.IsZero() {
		r.since = time.Time{}
		delete(r.secret.Annotations, rotationAnnotation)
		r.said = append(r.said, "the former authority of OVN's certificates is trusted no more")
	}
	return r.current.put(data, currentKeys)
}

// whole reports whether all nodes that are there and trusted have certificates of the next authority. Of the programs,
// ovn-node runs on each of them, and ovn-central on the members. A controller gets its certificate as fast, and may
// have moved.
func (r *rotation) whole() (bool, error) {
	unknown, err := time.Parse(time.RFC3339, r.secret.Annotations[unknownAnnotation])
	if err == nil && r.now.Before(unknown) {
		return false, nil
	}
	members, err := r.members()
	if err != nil {
		return false, err
	}
	trusted := map[string]bool{}
	for _, n := range r.nodes {
		trusted[n.Name] = !conf.Distrusted(n.Labels)
	}
	next := holders(r.secret.Data[nextHoldersKey])
	for name := range holders(r.secret.Data[holdersKey]) {
		role, node, _ := strings.Cut(name, "/")
		needed := trusted[node] && (Role(role) == Node || Role(role) == Central && members[node])
		if _, has := next[name]; needed && !has {
			return false, nil
		}
	}
	return true, nil
}

// signing reports whether the next authority signs.
func (r *rotation) signing() bool {
	made := r.next.cert.NotBefore.Add(clockSkew)
	return r.now.After(made.Add(publishedFor)) || !r.since.IsZero() && r.now.After(made.Add(rotatedAfter))
}

// last is the end of a rotation that some nodes do not take part in.
func (r *rotation) last() time.Time { return r.since.Add(rotatedAfter + rotatedFor) }

func (r *rotation) result() turned {
	t := turned{changed: r.changed, rotating: !r.since.IsZero(), said: r.said, notes: map[string]string{}}
	current := encode("CERTIFICATE", r.current.cert.Raw)
	t.signs, t.bundle = r.current, current
	if r.next != nil {
		next := encode("CERTIFICATE", r.next.cert.Raw)
		t.bundle = slices.Concat(current, next)
		if r.signing() {
			t.signs, t.bundle = *r.next, slices.Concat(next, current)
		}
	}
	if t.rotating {
		t.notes[RotationKey] = fmt.Sprintf("since %s; the former authority is trusted until all nodes have new "+
			"certificates, at the latest until %s", r.since.Format(time.RFC3339), r.last().Format(time.RFC3339))
	} else if names := strings.Fields(string(r.secret.Data[distrustedKey])); len(names) > 0 {
		t.notes[DistrustedKey] = strings.Join(names, " ")
	}
	return t
}

// reason says why a rotation is wanted; "" if none is. Each rotation makes all nodes connect again, so one for nodes
// that were deleted, whose certificates end by themselves, waits until the present authority is as old as they can get.
func (r *rotation) reason() string {
	handled := strings.Fields(string(r.secret.Data[distrustedKey]))
	there := map[string]bool{}
	var distrusted, gone []string
	for _, n := range r.nodes {
		there[n.Name+" "+shortUID(n.UID)] = true
		if conf.Distrusted(n.Labels) && !slices.Contains(handled, n.Name) {
			distrusted = append(distrusted, n.Name)
		}
	}
	for name, uid := range holders(r.secret.Data[holdersKey]) {
		if _, node, _ := strings.Cut(name, "/"); !there[node+" "+uid] && !slices.Contains(gone, node) {
			gone = append(gone, node)
		}
	}
	slices.Sort(gone)
	_, asked := r.secret.Annotations[RotateAnnotation]
	switch {
	case asked:
		return "the annotation " + RotateAnnotation + " asks for it"
	case len(distrusted) > 0:
		return "distrusted: " + strings.Join(distrusted, ", ")
	// While a request is answered, its node may be younger than the list of nodes.
	case r.holder.role == "" && len(gone) > 0 && r.now.Sub(r.current.cert.NotBefore.Add(clockSkew)) > r.life:
		return "deleted: " + strings.Join(gone, ", ")
	}
	r.noteDistrusted() // a node may be trusted again
	return ""
}

// noteDistrusted writes down the nodes that get no certificates.
func (r *rotation) noteDistrusted() {
	var names []string
	for _, n := range r.nodes {
		if conf.Distrusted(n.Labels) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	r.set(distrustedKey, names)
}

// noteHolder writes down who gets a certificate now, before it is signed.
func (r *rotation) noteHolder() {
	if r.holder.role == "" {
		return
	}
	key := holdersKey
	if r.next != nil && r.signing() {
		key = nextHoldersKey
	}
	all := holders(r.secret.Data[key])
	all[r.holder.name()] = shortUID(r.holder.uid)
	lines := make([]string, 0, len(all))
	for name, uid := range all {
		lines = append(lines, name+" "+uid)
	}
	slices.Sort(lines)
	r.set(key, lines)
	// It was trusted a moment ago, when the list of nodes here may have been older.
	without := slices.DeleteFunc(strings.Fields(string(r.secret.Data[distrustedKey])), func(name string) bool {
		return name == r.holder.node
	})
	r.set(distrustedKey, without)
}

func (r *rotation) set(key string, lines []string) {
	text := strings.Join(lines, "\n")
	if string(r.secret.Data[key]) != text {
		r.secret.Data[key], r.changed = []byte(text), true
	}
}

// shortUID is enough of a UID to tell a Node from one that has its name later.
func shortUID(uid string) string { return uid[:min(8, len(uid))] }

func holders(text []byte) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, uid, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = uid
	}
	return all
}

// settled reports whether all nodes have had certificates of the next authority for readWithin, so that their programs
// have read them.
func (s *Signer) settled(whole bool, now time.Time) bool {
	if !whole {
		s.wholeSince = time.Time{}
		return false
	}
	if s.wholeSince.IsZero() {
		s.wholeSince = now
	}
	return now.Sub(s.wholeSince) >= readWithin
}

// members returns the nodes with OVN's databases.
func (s *Signer) members(ctx context.Context) (map[string]bool, error) {
	list, err := s.memberList(ctx)
	nodes := map[string]bool{}
	for _, m := range list.Members {
		nodes[m.Node] = true
	}
	return nodes, err
}
