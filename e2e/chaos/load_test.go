//go:build chaos

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// load counts what goes on while a fault comes and goes.
type load struct {
	ended  atomic.Int64 // operations
	failed atomic.Int64 // pods that did not start within the kubelet's patience
	stall  atomic.Int64 // the longest operation, in nanoseconds
}

// operation counts an operation and its time.
func (l *load) operation(begin time.Time) {
	l.ended.Add(1)
	took := int64(time.Since(begin))
	for longest := l.stall.Load(); took > longest && !l.stall.CompareAndSwap(longest, took); {
		longest = l.stall.Load()
	}
}

// progress waits until so many operations more have ended; false: all have ended.
func (l *load) progress(done <-chan struct{}, more int64) bool {
	for until := l.ended.Load() + more; l.ended.Load() < until; {
		select {
		case <-done:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return true
}

// comparePorts compares the ports in NB with the acknowledged ones, which are the addresses of each port, by the
// sandbox. Nobody may write meanwhile.
func comparePorts(t testing.TB, server *ovndbtest.Server, acknowledged map[string][][]string,
) (lost, residue int, words []string) {
	t.Helper()
	rows := map[string][][]string{}
	for _, row := range server.Dump(t, nb.LogicalSwitchPortTable) {
		sandbox := row["external_ids"].(map[string]string)["ovn-multinet/sandbox"]
		addresses, _ := row["addresses"].(string)
		rows[sandbox] = append(rows[sandbox], strings.Fields(addresses))
	}
	for sandbox, ports := range acknowledged {
		for _, port := range ports {
			i := slices.IndexFunc(rows[sandbox], func(row []string) bool { return containsAll(row, port) })
			if i < 0 {
				words = append(words, fmt.Sprintf("%s has no port with %v, but %v", sandbox, port, rows[sandbox]))
				lost++
				continue
			}
			rows[sandbox] = slices.Delete(rows[sandbox], i, i+1)
		}
	}
	for sandbox, others := range rows {
		if len(others) > 0 {
			words = append(words, fmt.Sprintf("NB has ports of %q that nobody owns: %v", sandbox, others))
			residue += len(others)
		}
	}
	return lost, residue, words
}

func containsAll(row, addresses []string) bool {
	return !slices.ContainsFunc(addresses, func(a string) bool { return !slices.Contains(row, a) })
}
