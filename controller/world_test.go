package controller_test

import (
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// eventually polls the database, which tells a test nothing by itself, until what it has is what is wanted.
func eventually(t *testing.T, want string, got func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(nbtest.Limit); ; <-tick.C {
		now := got()
		if now == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is %q after %v, want %q", now, nbtest.Limit, want)
		}
	}
}
