package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// The next leads only when the lead of the one before has ended: what it was writing is written.
func TestLeaseIsGivenBackAfterTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		core := server.client()
		first := run(t, func(ctx context.Context, lead Lead) error { return Lease(ctx, core, "ours", discard, lead) }, 10*leaseDuration, nil)
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

// An election that is won at the moment of the end leads nothing that outlives it.
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
			c = run(t, func(ctx context.Context, lead Lead) error { return Lease(ctx, core, "ours", discard, lead) }, time.Hour, errDown)
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
