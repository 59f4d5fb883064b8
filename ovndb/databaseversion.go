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

// The row that names the owner of the database also shows whether the database was replaced. The row has an identity
// of its own, and an age that the leader increases. A row with another identity belongs to a database that was wiped.
// A row with a lower age belongs to a backup that was restored.

// Keys of external_ids of that row.
const (
	madeMark = "ovn-multinet/made"
	ageMark  = "ovn-multinet/age"
)

// countEvery is the time between two increases of the age. A backup that is restored within this time of its making
// cannot be distinguished from the database itself: the regular reconcile passes find the rows that it lacks.
const countEvery = 5 * time.Minute

// ownerRow is the content of the row of the owner.
type ownerRow struct {
	cluster string // "": no owner
	made    string
	age     int64
	ids     map[string]string // all external_ids; other programs may have added some
}

func (r *ownerRow) version() version { return version{r.made, r.age} }

// next returns the row with the cluster as the owner and with the next age.
func (r *ownerRow) next(cluster string) ownerRow {
	next := ownerRow{cluster: cluster, made: r.made, age: r.age + 1, ids: map[string]string{}}
	if r.cluster != cluster || r.made == "" {
		next.made = uuid.NewString()
	}
	maps.Copy(next.ids, r.ids)
	next.ids[ClusterMark], next.ids[madeMark], next.ids[ageMark] = cluster, next.made, strconv.FormatInt(next.age, 10)
	return next
}

// OnReplaced sets the function that is called when the database was replaced: it was wiped, or a backup was restored.
// The probe, every read of the owner and every write detect that. No write reaches the new database before f has ended,
// so f must neither block nor use the database.
func (d *DB) OnReplaced(f func()) {
	d.age.mu.Lock()
	defer d.age.mu.Unlock()
	d.age.replaced = f
}

// readOwner is the operation that reads the row of the owner.
var readOwner = Select(nb.CoppTable, ClusterKey, "external_ids")

// readOwner decodes the row in a result, and detects whether the database was replaced. before is the version that
// was known before the read began.
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
		d.age.observe(before, row.version())
	}
	return there, row
}

// version identifies a state of the row of the owner.
type version struct {
	made string
	age  int64
}

// replacedBy reports whether the later version belongs to another database, or to a backup of this one.
func (v version) replacedBy(later version) bool {
	return v.made != "" && (later.made != v.made || later.age < v.age)
}

// Replaced is the error of a write to a database that was wiped or restored from a backup since this process last read
// the row of its owner. Nothing was written. A later write is not refused for this reason.
type Replaced struct{ Database string }

func (e *Replaced) Error() string {
	return e.Database + " was wiped or restored from a backup just now"
}

// age is what this process knows about the row of the owner.
type age struct {
	mu       sync.Mutex
	replaced func() // nil: not set
	seen     version
	count    time.Time // when this process last increased the age
}

func (a *age) last() version {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// observe compares the row with the version that was known before this read began. Reads overlap: if another read saw
// another version meanwhile, the order of the two is unknown, and the next read decides.
func (a *age) observe(before, now version) {
	if now.made == "" {
		return // the row has no identity yet
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen != before {
		return
	}
	a.seen = now
	if a.replaced != nil && before.replacedBy(now) {
		a.replaced() // with the lock: a write needs the version, so it waits
	}
}

// due reports whether the leader has to increase the age.
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
