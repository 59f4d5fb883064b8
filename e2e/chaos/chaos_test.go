//go:build chaos

package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// How much is done. The defaults are the short form.
var (
	operations = flag.Int("operations", 10_000, "ADDs and DELs of the history on a raft")
	schedules  = flag.Int("schedules", 1000, "orders of the transactions of two controllers, and as many of agents and a controller")
	firstSeed  = flag.Uint64("seed", 1, "the first schedule's random number")
	cycles     = flag.Int("cycles", 200, "pods that start and end one after the other")
	stride     = flag.Int("stride", 20, "the plugin is killed at each n-th system call of a kind")
)

var table Table

// printing is the tests of the package with the table after them.
type printing struct{ *testing.M }

func (p printing) Run() int {
	code := p.M.Run()
	if err := table.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "the table:", err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) { lab.Main(printing{m}) }

// patience is the kubelet's: it tries a pod's sandbox again for about so long before an operator notices.
const patience = 4 * time.Minute

// report adds a row to the table and fails the test for each count that is not 0.
func report(t *testing.T, r Row) {
	t.Helper()
	table.Add(r)
	if r.Bad() > 0 {
		t.Errorf("%+v", r)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
