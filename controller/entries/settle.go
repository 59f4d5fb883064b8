package entries

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// settled is what a file and objects say together.
type settled struct {
	file   configfile.Config
	config configfile.Config
	taken  map[string]*entry.Object // by ID, each with the spec that counts
	why    map[string]string        // by ID: why an object's present spec does not count
	alone  map[string]alone         // by ID: what an object says alone, of those that were asked
}

// specs are the specs that count, by object and UID: an object that was deleted and created again is another one.
type specs map[string]json.RawMessage

func specKey(o *entry.Object) string { return o.ID() + " " + o.UID }

// settle decides which objects count beside a file. What counted before stays, unless the file says otherwise: an
// object that does not fit is refused, and of an edit that does not fit the former spec stays. Of new objects the older
// one counts.
func settle(file configfile.Config, objects []*entry.Object, before specs) *settled {
	s := &settled{file: file, config: file, taken: map[string]*entry.Object{}, why: map[string]string{},
		alone: map[string]alone{}}
	objects = slices.SortedFunc(slices.Values(objects), inOrder)
	var former, changed []*entry.Object
	for _, o := range objects {
		counted := before[specKey(o)]
		if counted == nil { // perhaps it counted when another controller led
			counted = o.Status.Accepted
		}
		if counted != nil {
			was := *o
			was.Spec = counted
			former = append(former, &was)
		}
		if !bytes.Equal(counted, o.Spec) {
			changed = append(changed, o)
		}
	}
	s.add(former)
	s.add(changed)
	return s
}

// inOrder sorts by kind, because pools need their routers, and the older object first.
func inOrder(a, b *entry.Object) int {
	return cmp.Or(
		cmp.Compare(slices.Index(entry.Kinds, a.Kind), slices.Index(entry.Kinds, b.Kind)),
		cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name),
	)
}

// add takes the objects that fit to those which are taken. It halves a list that does not fit as a whole, so that one
// object among a thousand costs twenty attempts.
func (s *settled) add(list []*entry.Object) {
	if len(list) == 0 {
		return
	}
	taken := maps.Clone(s.taken)
	for _, o := range list {
		taken[o.ID()] = o
	}
	config, err := join(s.file, taken)
	switch half := len(list) / 2; {
	case err == nil:
		s.config, s.taken = config, taken
		for _, o := range list {
			delete(s.why, o.ID())
		}
	case half == 0:
		s.why[list[0].ID()] = err.Error()
	default:
		s.add(list[:half])
		s.add(list[half:])
	}
}

func join(file configfile.Config, taken map[string]*entry.Object) (configfile.Config, error) {
	text, err := entry.Join(file.Document, slices.SortedFunc(maps.Values(taken), inOrder))
	if err != nil {
		return configfile.Config{}, err
	}
	return configfile.Parse(text)
}

// specs returns the specs that count, for the next settle.
func (s *settled) specs() specs {
	counts := specs{}
	for _, o := range s.taken {
		counts[specKey(o)] = o.Spec
	}
	return counts
}

// Together returns what objects say that nobody has applied yet, and why some of them would be refused, by their IDs.
func Together(objects []*entry.Object) (config configfile.Config, refused map[string]string) {
	s := settle(configfile.Config{}, objects, nil)
	return s.config, s.why
}
