package nad

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Present is an attachment that a running pod has.
type Present struct {
	Interface string
	Network   string // <namespace>/<NAD>
	Digest    string // of its request; "": an older program made it
}

// Change is what a running pod's annotation says, beside what the pod has.
type Change struct {
	// Remove and Add are the names of interfaces.
	Remove []string
	Add    []string
	// Positions are the indexes, in the annotation, of the attachments that stay, by the names of their interfaces.
	Positions map[string]int
}

// Nothing reports whether there is nothing to change.
func (c *Change) Nothing() bool { return len(c.Remove)+len(c.Add) == 0 }

// Digest identifies what a request asks for, beside its network and the name of its interface. The order of keys, the
// spelling of the annotation and keys that nobody reads make no difference.
func (s *Request) Digest() string {
	meaning := *s
	meaning.Namespace, meaning.Name, meaning.Interface = "", "", ""
	var ips []string // a prefix without a length has no text of its own
	for _, ip := range s.IPs {
		ips = append(ips, fmt.Sprintf("%s/%d", ip.Addr(), ip.Bits()))
	}
	args := map[string]any{} // whose keys are sorted, however deep
	for key, value := range s.CNIArgs {
		decoder := json.NewDecoder(bytes.NewReader(value))
		decoder.UseNumber() // a large number stays the one that it is
		var decoded any
		if decoder.Decode(&decoded) == nil {
			args[key] = decoded
		}
	}
	text, err := json.Marshal(struct {
		Request
		IPs     []string
		CNIArgs map[string]any
	}{meaning, ips, args})
	if err != nil {
		return "" // no text of a pod leads here: cni-args were parsed
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// is reports whether a pod's attachment is what the request asks for. Older programs wrote no digest.
func (s *Request) is(has *Present) bool {
	return has.Network == s.String() && (has.Digest == "" || has.Digest == s.Digest())
}

// keepNames gives requests without the name of an interface the names of the attachments that the pod has for them. A
// further request gets the first default name that no other one has: its own by its position, if that is free.
func keepNames(requests []Request, has []Present) {
	if len(has) == 0 {
		return
	}
	taken := map[string]bool{}
	for i := range requests {
		taken[requests[i].Interface] = true
	}
	for _, same := range []func(*Request, *Present) bool{
		(*Request).is,
		// A request that has changed keeps its name too, so that Compare finds the change.
		func(s *Request, at *Present) bool { return at.Network == s.String() },
	} {
		for i := range requests {
			s := &requests[i]
			if s.Interface != "" {
				continue
			}
			at := slices.IndexFunc(has, func(a Present) bool { return !taken[a.Interface] && same(s, &a) })
			if at >= 0 {
				s.Interface = has[at].Interface
				taken[s.Interface] = true
			}
		}
	}
	for _, at := range has { // also that of an attachment that goes: its name is free after the change
		taken[at.Interface] = true
	}
	for i := range requests {
		for k := i; requests[i].Interface == ""; k = (k + 1) % (2 * MaxNetworks) {
			if name := defaultName(k); !taken[name] {
				requests[i].Interface = name
				taken[name] = true
			}
		}
	}
}

// Compare says what to change of a running pod that has these attachments. An interface that is to have another
// network, or other addresses, is an error: the pod keeps what it has, all of it.
func Compare(requests []Request, has []Present) (*Change, error) {
	change := &Change{Positions: map[string]int{}}
	for i := range requests {
		s := &requests[i]
		at := slices.IndexFunc(has, func(a Present) bool { return a.Interface == s.Interface })
		if at < 0 {
			change.Add = append(change.Add, s.Interface)
			continue
		}
		if !s.is(&has[at]) {
			return nil, changed(s, &has[at])
		}
		change.Positions[s.Interface] = i
	}
	for _, at := range has {
		if _, stays := change.Positions[at.Interface]; !stays {
			change.Remove = append(change.Remove, at.Interface)
		}
	}
	return change, nil
}

func changed(s *Request, has *Present) error {
	const todo = "remove the interface from the annotation first, and add it again when it is gone; " +
		"or write the annotation as it was"
	if has.Network != s.String() {
		return conf.Errorf(conf.CodeInvalidConfig, todo, "interface %s is on network %s, and the annotation %s now says %s: "+
			"an interface of a running pod keeps its network", has.Interface, has.Network, conf.NetworksAnnotation, s)
	}
	return conf.Errorf(conf.CodeInvalidConfig, todo, "interface %s on network %s: the annotation %s now asks for "+
		"something else of it: an interface of a running pod stays as it is", has.Interface, s, conf.NetworksAnnotation)
}
