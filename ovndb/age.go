package ovndb

import (
	"strconv"
	"sync"
	"time"

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
}

func (r *ownerRow) ids() map[string]string {
	ids := map[string]string{}
	for key, value := range map[string]string{ClusterMark: r.cluster, madeMark: r.made} {
		if value != "" {
			ids[key] = value
		}
	}
	if r.age > 0 {
		ids[ageMark] = strconv.FormatInt(r.age, 10)
	}
	return ids
}

// OnReplaced has f called whenever the database turns out to be another one than before: it was wiped, or a backup of it was
// restored. The probe finds that out, and each look at the owner.
func (d *DB) OnReplaced(f func()) {
	d.age.mu.Lock()
	defer d.age.mu.Unlock()
	d.age.replaced = f
}

// readOwner looks the row up.
var readOwner = Select(nb.CoppTable, ClusterKey, "external_ids")

// readOwner takes the row out of the result, and notes whether the database is still the same.
func (d *DB) readOwner(result ovsdb.OperationResult) (there bool, row ownerRow) {
	if there = len(result.Rows) > 0; there {
		ids, _ := result.Rows[0]["external_ids"].(ovsdb.OvsMap)
		row.cluster, _ = ids.GoMap[ClusterMark].(string)
		row.made, _ = ids.GoMap[madeMark].(string)
		age, _ := ids.GoMap[ageMark].(string)
		row.age, _ = strconv.ParseInt(age, 10, 64)
	}
	if row.cluster == d.cluster || !there {
		d.age.observe(row)
	}
	return there, row
}

// age is what this process knows of the row.
type age struct {
	replaced func() // nil: nobody wants to know

	mu    sync.Mutex
	seen  ownerRow
	count time.Time // when this process counted last
}

// observe compares the row with what was seen of it before.
func (a *age) observe(now ownerRow) {
	if now.made == "" {
		return // the row that a controller makes next is another one
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.seen
	a.seen = now
	if before.made != "" && (now.made != before.made || now.age < before.age) && a.replaced != nil {
		go a.replaced()
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
