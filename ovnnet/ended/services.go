package ended

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// The load balancers of Services translate on each node that has clients. So the connections of Services that have
// ended are in one row for all nodes of a scope: a router, or a network on no router. Agents do not change this row.
// Each write deletes entries that are older than maxAge, and the oldest ones beyond maxServed.

const (
	// servedPrefix is the prefix of a key in such a row. The rest of the key is "<protocol> <address>:<port>" of a
	// Service. The value is a list of words "<backend>@<time>", with the address and port of a backend, or "all".
	servedPrefix = "ovn-multinet/ended:"
	// allBackends is the word for connections to any backend: nobody has the Service's port now.
	allBackends = "all"
	// maxAge is how long an agent may be away and still find the entry.
	maxAge = time.Hour
	// maxServed bounds the words of a row.
	maxServed = 4096
)

// Served are connections to a port of a Service.
type Served struct {
	Scope    string // of the Service
	Protocol string
	Vip      netip.AddrPort
	Backend  netip.AddrPort // the zero AddrPort: any
	Turn     string         // differs each time that these connections end
}

// times has the words of a value, with the seconds since 1970 at which the connections have ended.
type times map[string]int64

// String is the value.
func (t times) String() string {
	var words []string
	for _, word := range nbrows.SortedKeys(t) {
		words = append(words, word+"@"+strconv.FormatInt(t[word], 10))
	}
	return strings.Join(words, " ")
}

// parseTimes parses what String returns. Other words are those of other versions.
func parseTimes(text string) times {
	t := times{}
	for word := range strings.FieldsSeq(text) {
		word, at, _ := strings.Cut(word, "@")
		if seconds, err := strconv.ParseInt(at, 10, 64); err == nil {
			t[word] = seconds
		}
	}
	return t
}

// vips are those of a Service's load balancers: the backends by "<protocol> <address>:<port>".
func vips(balancers map[string]*nb.LoadBalancer) map[string][]string {
	all := map[string][]string{}
	for protocol, row := range balancers {
		for vip, text := range row.Vips {
			all[protocol+" "+vip] = strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
		}
	}
	return all
}

// EndServed changes the list of a scope, in the transaction that changes the load balancers of a Service. If the
// Service does not have a port of an address any more, all connections to it end: the port may be another Service's
// next. If only a backend goes, connections of UDP end. Those of TCP and SCTP go on, as with kube-proxy: the backend
// may end them in order. before and after are by protocol.
func EndServed(
	ctx context.Context, b *nbrows.Batch, scope string, before, after map[string]*nb.LoadBalancer, now time.Time,
) error {
	was, is := vips(before), vips(after)
	if maps.EqualFunc(was, is, slices.Equal) {
		return nil
	}
	ended := map[string]times{}
	for vip, backends := range was {
		lives, served := is[vip]
		t := times{}
		for _, backend := range backends {
			isUDP := strings.HasPrefix(vip, nb.LoadBalancerProtocolUDP+" ")
			if !served || isUDP && !slices.Contains(lives, backend) {
				t[backend] = now.Unix()
			}
		}
		if !served { // also without backends: connections of TCP to former backends may go on
			t[allBackends] = now.Unix()
		}
		if len(t) > 0 {
			ended[vip] = t
		}
	}
	key := ovndb.EndedServedKey(scope)
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, b.Db, nb.CoppTable, []string{key})
	if err != nil || len(rows)+len(ended) == 0 {
		return err
	}
	b.News = b.News || len(ended) > 0
	have := map[string]times{}
	if len(rows) > 0 {
		have = servedIn(rows[0])
	}
	wanted := merge(have, ended, is, now)
	if len(rows) == 0 {
		ids := map[string]string{nbrows.KeyKind: nbrows.KindEndedServed}
		for vip, t := range wanted {
			ids[servedPrefix+vip] = t.String()
		}
		nbrows.Put(b, nb.CoppTable, key, nil,
			&nb.Copp{UUID: key, Name: "ovn-multinet ended connections of services, " + scope, ExternalIDs: ids})
		return nil
	}
	var remove []string
	set := map[string]string{}
	for vip, t := range have {
		if !maps.Equal(t, wanted[vip]) {
			remove = append(remove, servedPrefix+vip)
		}
	}
	for vip, t := range wanted {
		if !maps.Equal(t, have[vip]) {
			set[servedPrefix+vip] = t.String()
		}
	}
	if len(remove)+len(set) > 0 {
		b.Add(ovndb.Present(nb.CoppTable, key), ovndb.SetPairs(nb.CoppTable, key, "external_ids", remove, set))
	}
	return nil
}

// merge returns the entries that a list should have. Connections to what is a backend now do not end.
func merge(have, ended map[string]times, lives map[string][]string, now time.Time) map[string]times {
	wanted := map[string]times{}
	for _, from := range []map[string]times{have, ended} {
		for vip, t := range from {
			if wanted[vip] == nil {
				wanted[vip] = times{}
			}
			maps.Copy(wanted[vip], t)
		}
	}
	type word struct {
		vip, text string
		at        int64
	}
	var all []word
	for vip, t := range wanted {
		backends, isServed := lives[vip]
		maps.DeleteFunc(t, func(text string, at int64) bool {
			age := time.Duration(now.Unix()-at) * time.Second
			return age.Abs() > maxAge || isServed && text == allBackends || slices.Contains(backends, text)
		})
		for text, at := range t {
			all = append(all, word{vip, text, at})
		}
	}
	slices.SortFunc(all, func(a, b word) int {
		return cmp.Or(cmp.Compare(rank(a.text), rank(b.text)), cmp.Compare(b.at, a.at))
	})
	for _, w := range all[min(maxServed, len(all)):] {
		delete(wanted[w.vip], w.text)
	}
	maps.DeleteFunc(wanted, func(_ string, t times) bool { return len(t) == 0 })
	return wanted
}

// rank puts "all" before other words: it stands for many of them.
func rank(text string) int {
	if text == allBackends {
		return 0
	}
	return 1
}

// servedIn returns the entries of a row.
func servedIn(row *nb.Copp) map[string]times {
	all := map[string]times{}
	for key, value := range row.ExternalIDs {
		if vip, ok := strings.CutPrefix(key, servedPrefix); ok {
			all[vip] = parseTimes(value)
		}
	}
	return all
}

// SelectServed is the operation that reads the version of a scope's list.
func SelectServed(scope string) ovsdb.Operation {
	return ovndb.Select(nb.CoppTable, ovndb.EndedServedKey(scope), "_version")
}

// ReadServed reads the list of a scope.
func ReadServed(ctx context.Context, db *ovndb.DB, scope string) (list []Served, err error) {
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, db, nb.CoppTable, []string{ovndb.EndedServedKey(scope)})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	all := servedIn(rows[0])
	for _, key := range nbrows.SortedKeys(all) {
		protocol, text, _ := strings.Cut(key, " ")
		vip, err := netip.ParseAddrPort(text)
		if err != nil {
			continue // of another version
		}
		t := all[key]
		for _, word := range nbrows.SortedKeys(t) {
			_, every := t[allBackends]
			one := Served{Scope: scope, Protocol: protocol, Vip: vip, Turn: strconv.FormatInt(t[word], 10)}
			if word != allBackends {
				if one.Backend, err = netip.ParseAddrPort(word); err != nil || every {
					continue
				}
			}
			list = append(list, one)
		}
	}
	return list, nil
}
