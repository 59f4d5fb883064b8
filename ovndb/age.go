package ovndb

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// The row that names the owner of the database also tells whether the database is the one that it was. The row has an identity of
// its own since it was made, and an age that the leading controller counts up. A row that was made anew belongs to a database that
// was wiped, and a row that is younger than before belongs to a backup that was restored.

// Keys of external_ids of that row.
const (
	madeMark = "ovn-multinet/made"
	ageMark  = "ovn-multinet/age"
)

// countEvery is the time between two counts. A backup that is restored within that time of its making is not told from the database:
// the passes that run anyway find out what it lacks.
const countEvery = 5 * time.Minute

// ownerRow is what the row says.
type ownerRow struct {
	cluster string // "": no owner
	made    string
	age     int64
	ids     map[string]string // all external_ids: other hands may have added some
}

// next is the row when the cluster has it, one count later.
func (r *ownerRow) next(cluster string) ownerRow {
	next := ownerRow{cluster: cluster, made: r.made, age: r.age + 1, ids: map[string]string{}}
	if r.cluster != cluster || r.made == "" {
		next.made = uuid.NewString()
	}
	maps.Copy(next.ids, r.ids)
	next.ids[ClusterMark], next.ids[madeMark], next.ids[ageMark] = cluster, next.made, strconv.FormatInt(next.age, 10)
	return next
}

// OnReplaced has f called whenever the database turns out to be another one than before: it was wiped, or a backup of it was
// restored. The probe finds that out, and each look at the owner, which waits for f.
func (d *DB) OnReplaced(f func()) {
	d.age.mu.Lock()
	defer d.age.mu.Unlock()
	d.age.replaced = f
}

// readOwner looks the row up.
var readOwner = Select(nb.CoppTable, ClusterKey, "external_ids")

// readOwner takes the row out of the result, and notes whether the database is still the same. before is what was seen
// before the result was asked for.
func (d *DB) readOwner(before version, result ovsdb.OperationResult) (there bool, row ownerRow) {
	if there = len(result.Rows) > 0; there {
		ids, _ := result.Rows[0]["external_ids"].(ovsdb.OvsMap)
		row.ids = map[string]string{}
		for key, value := range ids.GoMap {
			row.ids[fmt.Sprint(key)] = fmt.Sprint(value)
		}
		row.cluster, row.made = row.ids[ClusterMark], row.ids[madeMark]
		row.age, _ = strconv.ParseInt(row.ids[ageMark], 10, 64)
	}
	if row.cluster == d.cluster || !there {
		d.age.observe(before, version{row.made, row.age})
	}
	return there, row
}

// version is what tells one state of the row from another.
type version struct {
	made string
	age  int64
}

// age is what this process knows of the row.
type age struct {
	mu       sync.Mutex
	replaced func() // nil: nobody wants to know
	seen     version
	count    time.Time // when this process counted last
}

func (a *age) last() version {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// observe compares the row with what was seen of it before this look began. Looks overlap: where another look has seen
// something else meanwhile, which of the two rows is the older one is not known, and the next look tells.
func (a *age) observe(before, now version) {
	if now.made == "" {
		return // the row that a controller makes next is another one
	}
	a.mu.Lock()
	replaced := a.replaced
	if a.seen != before || before.made == "" || now.made == before.made && now.age >= before.age {
		replaced = nil
	}
	if a.seen == before {
		a.seen = now
	}
	a.mu.Unlock()
	if replaced != nil {
		replaced()
	}
}

// due tells whether the leading controller is to count.
func (a *age) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count.IsZero() {
		a.count = time.Now()
	}
	return a.seen.made == "" || time.Since(a.count) >= countEvery
}

func (a *age) counted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count = time.Now()
}
