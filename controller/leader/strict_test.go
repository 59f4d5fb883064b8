package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// The next candidate leads only after the end of the former leader's work.
func TestLeaseIsGivenBackAfterTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		core := server.client()
		first := run(t, func(ctx context.Context, lead Lead) error { return Lease(ctx, core, "ours", discard, lead) },
			10*leaseDuration, nil)
		<-first.leads
		second := server.candidate(t, server.client(), discard)
		time.Sleep(leaseDuration)
		first.end()
		<-second.leads
		if got := first.ended(); got != "" {
			t.Errorf("the second leads, and the first ended with %q", got)
		}
		second.end()
		synctest.Wait()
	})
}

// A candidate that wins the election at the moment of its end has no leader's work that goes on after its end.
func TestLeaseWonAtTheEnd(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var server api
			way := server.client()
			var c *candidate
			ready := make(chan struct{})
			way.set(func(verb string, _ *coordinationv1.Lease) error {
				<-ready
				if verb == "create" {
					c.end()
				}
				return nil
			})
			core := way
			c = run(t, func(ctx context.Context, lead Lead) error { return Lease(ctx, core, "ours", discard, lead) },
				time.Hour, errDown)
			close(ready)
			synctest.Wait()
			select {
			case <-c.leads:
				if got := c.ended(); got != "not yet" {
					t.Errorf("its lead goes on, and it ended with %q", got)
				}
			default:
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// A leader that sees another's name on the Lease knows at once.
func TestLeadingOfOneWhoSawAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		first := server.candidate(t, server.client(), discard)
		<-first.leads
		time.Sleep(10 * leaseDuration)
		server.write(func(spec *coordinationv1.LeaseSpec) { *spec.HolderIdentity = "thief" })
		time.Sleep(2 * retryPeriod)
		synctest.Wait()
		if err := first.leading(); !errors.Is(err, errLost) {
			t.Errorf("it has seen another's name: %v", err)
		}
		<-first.term.Done()
		synctest.Wait()
	})
}

// A leader that was stopped for so long that another has the Lease does not give back what is not its own: client-go's
// release reads the Lease and writes it, whoever holds it.
func TestLeaseOfAnotherIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		way := server.client()
		first := server.candidate(t, way, discard)
		<-first.leads
		requests := 0
		way.set(func(string, *coordinationv1.Lease) error {
			switch requests++; requests {
			case 1: // the renewal, while the process is stopped
				time.Sleep(10 * leaseDuration)
				return errDown
			case 2: // the look that follows, whose time is over
				return errDown
			}
			return nil
		})
		server.write(func(spec *coordinationv1.LeaseSpec) { *spec.HolderIdentity = "thief" })
		<-first.term.Done()
		synctest.Wait()
		if holder, _ := server.holder(); holder != "thief" {
			t.Errorf("the Lease is %q's, want the thief's", holder)
		}
		if got := first.ended(); got != errLost.Error() {
			t.Errorf("the first ended with %q", got)
		}
	})
}
