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

// The clock of these tests is synctest's: it stands still while anything moves, and only then goes on.

// One of two leads, for as long as it lives; at its end it hands over at once, which is before its Lease would end.
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
			t.Errorf("after the end, first leads: %t (%v), second: %t", first.isLeading(), first.leading(), second.isLeading())
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

// A candidate that ends while it waits has led nothing and leaves the Lease alone.
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

// However the Lease is lost, the lead is told, no other leads before that, and the process ends with an error.
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

// A leader that is cut off is replaced, and by then knows itself that it is none.
func TestLeaseOfOneThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		way := server.client()
		first := server.candidate(t, way, discard)
		<-first.leads
		second := server.candidate(t, server.client(), discard)
		time.Sleep(10 * leaseDuration)
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

// A process that stands still, here in a write that is not answered, does not hear that it leads no more: so leading
// goes by the clock. The time of a late answer counts from the question, since others may count from there.
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

// From before the Lease is given back, not after, whoever is still writing is told.
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

// A lead that ends by itself gives the Lease back. The process ends with it, and with an error in any case: nobody
// asked it to.
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

// The error of a lead that was asked to end is handed on too.
func TestLeaseHandsTheLeadsErrorOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server api
		core := server.client()
		c := run(t, func(ctx context.Context, lead Lead) error { return Lease(ctx, core, "ours", discard, lead) }, time.Hour, errDown)
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

// The Lease is where administrators, and the permissions in the manifests, expect it.
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
