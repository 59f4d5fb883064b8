package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// These tests use the clock of synctest: time passes only when all goroutines wait.

// One of two candidates leads until its end. Then the other one leads at once, and does not wait for the end of the
// Lease.
func TestLeaseHasOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		var firstLog, secondLog buffer
		first := server.candidate(t, server.client(), slog.New(slog.NewTextHandler(&firstLog, nil)))
		<-first.leads
		second := server.candidate(t, server.client(), slog.New(slog.NewTextHandler(&secondLog, nil)))
		for range 100 {
			time.Sleep(leaseDuration / 10)
			if !first.isLeading() || second.isLeading() {
				t.Fatalf("first leads: %t, second: %t", first.isLeading(), second.isLeading())
			}
		}
		holder, _ := server.holder()
		if got := secondLog.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "msg=waiting leader="+holder) {
			t.Errorf("the second's log: %s, want that it waits for %s", got, holder)
		}
		if got := firstLog.String(); got != "" {
			t.Errorf("the first's log: %s", got)
		}

		end := time.Now()
		first.end()
		<-second.leads
		if took := time.Since(end); took >= leaseDuration {
			t.Errorf("handed over after %v", took)
		}
		if first.isLeading() || !second.isLeading() || first.term.Err() == nil || !errors.Is(first.leading(), errLost) {
			t.Errorf("after the end, first leads: %t (%v), second: %t", first.isLeading(), first.leading(),
				second.isLeading())
		}
		if got := first.ended(); got != "" {
			t.Errorf("the first ended with %q", got)
		}
		if now, _ := server.holder(); now == holder || now == "" {
			t.Errorf("%q holds the Lease", now)
		}
		second.end()
		if got := second.ended(); got != "" {
			t.Errorf("the second ended with %q", got)
		}
	})
}

// A candidate that ends while it waits has not led and does not change the Lease.
func TestLeaseWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		first := server.candidate(t, server.client(), discard)
		<-first.leads
		second := server.candidate(t, server.client(), discard)
		time.Sleep(leaseDuration)
		second.end()
		if got := second.ended(); got != "" {
			t.Errorf("it ended with %q", got)
		}
		time.Sleep(leaseDuration)
		if !first.isLeading() || second.isLeading() {
			t.Errorf("first leads: %t, second: %t", first.isLeading(), second.isLeading())
		}
		first.end()
		synctest.Wait()
	})
}

// If the Lease is lost in any way, the leader learns it, no other candidate leads before, and the process ends with an
// error.
func TestLeaseIsLost(t *testing.T) {
	tests := []struct {
		name string
		lose func(server *api, way *client)
	}{
		{"the API is out of reach", func(_ *api, way *client) {
			way.set(func(string, *coordinationv1.Lease) error { return errDown })
		}},
		{"the API refuses to write", func(_ *api, way *client) {
			way.set(func(verb string, _ *coordinationv1.Lease) error {
				if verb == "get" {
					return nil
				}
				return errDown
			})
		}},
		{"another holds it", func(server *api, _ *client) {
			server.write(func(spec *coordinationv1.LeaseSpec) { *spec.HolderIdentity = "thief" })
		}},
		{"it is gone, and cannot be made again", func(server *api, way *client) {
			server.mu.Lock()
			defer server.mu.Unlock()
			server.lease = nil
			way.set(func(verb string, _ *coordinationv1.Lease) error {
				if verb == "create" {
					return errDown
				}
				return nil
			})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var server api
				way := server.client()
				first := server.candidate(t, way, discard)
				<-first.leads
				time.Sleep(10 * leaseDuration)
				synctest.Wait() // a renewal can be under way at this very time
				_, renewed := server.holder()
				tt.lose(&server, way)
				<-first.term.Done()
				if got := first.ended(); got != "does not lead any more" {
					t.Errorf("it ended with %q", got)
				}
				time.Sleep(time.Until(renewed.Add(leaseDuration + 1)))
				if err := first.leading(); !errors.Is(err, errLost) {
					t.Errorf("when the Lease can be another's: %v", err)
				}
				if lease, err := server.serve("get", nil); err == nil && *lease.Spec.HolderIdentity == "thief" && !lease.Spec.RenewTime.Time.Equal(renewed) {
					t.Errorf("another's Lease was renewed at %v", lease.Spec.RenewTime)
				}
			})
		})
	}
}

// A leader without a connection is replaced. At that time it knows already that it no longer leads.
func TestLeaseOfOneThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		way := server.client()
		first := server.candidate(t, way, discard)
		<-first.leads
		second := server.candidate(t, server.client(), discard)
		time.Sleep(10 * leaseDuration)
		synctest.Wait()
		_, renewed := server.holder()
		way.set(func(string, *coordinationv1.Lease) error { return errDown })
		<-second.leads
		if first.isLeading() || first.term.Err() == nil || first.leading() == nil || !second.isLeading() {
			t.Errorf("first leads: %t (%v), second: %t", first.isLeading(), first.leading(), second.isLeading())
		}
		if since := time.Since(renewed); since < leaseDuration {
			t.Errorf("the second leads %v after the first renewed the Lease", since)
		}
		if got := first.ended(); got != "does not lead any more" {
			t.Errorf("the first ended with %q", got)
		}
		second.end()
		synctest.Wait()
	})
}

// A process that waits, here for the answer to a write, does not learn that it no longer leads. Therefore leading uses
// the clock. The time of the Lease begins with the request, because the other candidates may see the record from then
// on.
func TestLeadingGoesByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		way := server.client()
		c := server.candidate(t, way, discard)
		<-c.leads
		time.Sleep(10 * leaseDuration)
		synctest.Wait()
		held := make(chan struct{})
		way.set(func(verb string, _ *coordinationv1.Lease) error {
			<-held
			return nil
		})
		_, renewed := server.holder()
		time.Sleep(time.Until(renewed.Add(leaseDuration)))
		if err := c.leading(); err != nil {
			t.Errorf("while the Lease lasts: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := c.leading(); !errors.Is(err, errLost) || c.term.Err() != nil {
			t.Errorf("after the Lease: %v, and its term: %v", err, c.term.Err())
		}
		time.Sleep(leaseDuration)
		way.set(nil)
		close(held)
		synctest.Wait()
		if err := c.leading(); !errors.Is(err, errLost) {
			t.Errorf("by an answer that came too late: %v", err)
		}
		c.end()
		synctest.Wait()
	})
}

// leading returns an error before the Lease is released, for any writer that still runs.
func TestLeadingEndsBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		way := server.client()
		c := server.candidate(t, way, discard)
		<-c.leads
		time.Sleep(leaseDuration)
		synctest.Wait()
		if !c.isLeading() {
			t.Fatal("it does not lead")
		}
		told := "not given back"
		way.set(func(verb string, lease *coordinationv1.Lease) error {
			if verb == "update" && *lease.Spec.HolderIdentity == "" {
				told = fmt.Sprint(c.leading())
			}
			return nil
		})
		c.end()
		if got := c.ended(); got != "" || told != errLost.Error() {
			t.Errorf("it ended with %q; leading, at the moment the Lease was given back: %s", got, told)
		}
		if holder, _ := server.holder(); holder != "" {
			t.Errorf("%s holds the Lease", holder)
		}
	})
}

// A leader whose work ends by itself releases the Lease. The process ends with an error, because nobody asked for the
// end.
func TestLeadEndsByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"with an error":    {errors.New("the database is away"), "the database is away"},
		"without an error": {nil, "does not lead any more"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var server api
				err := Lease(background, server.client(), "ours", discard, func(ctx context.Context, leading func() error) error {
					if err := leading(); err != nil {
						t.Errorf("at its beginning: %v", err)
					}
					return tt.err
				})
				if err == nil || err.Error() != tt.want {
					t.Errorf("it ended with %v, want %s", err, tt.want)
				}
				if holder, _ := server.holder(); holder != "" {
					t.Errorf("%s holds the Lease", holder)
				}
			})
		})
	}
}

// Lease returns the error of a leader that was asked to end, too.
func TestLeaseHandsTheLeadsErrorOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		core := server.client()
		c := run(t, func(ctx context.Context, lead Lead) error { return Lease(ctx, core, "ours", discard, lead) },
			time.Hour, errDown)
		<-c.leads
		c.end()
		if got := c.ended(); got != "not yet" {
			t.Errorf("it ended with %q before its lead did", got)
		}
		time.Sleep(time.Hour)
		if got := c.ended(); got != errDown.Error() {
			t.Errorf("it ended with %q", got)
		}
	})
}

// The Lease has the name and namespace that the Role in the manifests permits.
func TestLeaseIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		c := server.candidate(t, server.client(), discard)
		<-c.leads
		lease, err := server.serve("get", nil)
		if err != nil {
			t.Fatal(err)
		}
		if lease.Namespace != "ours" || lease.Name != "ovn-multinet-controller" || *lease.Spec.LeaseDurationSeconds != int32(leaseDuration/time.Second) {
			t.Errorf("Lease %+v", lease)
		}
		c.end()
		synctest.Wait()
	})
}

func TestLeadingBeforeTheFirstLease(t *testing.T) {
	if err := (&lease{}).leading(); !errors.Is(err, errLost) {
		t.Errorf("%v", err)
	}
}
