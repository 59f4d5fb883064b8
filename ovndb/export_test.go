package ovndb

import "time"

// Endpoints are endpoints without TLS.
func Endpoints(all ...string) *endpoints {
	p := &endpoints{}
	p.set(all)
	return p
}

// Check is the check on behalf of waiting callers.
func (p *endpoints) Check(since time.Time) []Failure { return p.check(since) }

// ProbeDue makes the next probe due, for a read.
func (d *DB) ProbeDue() { d.probed.Store(nil) }

// ConnectPauses returns the pauses of a new connection, one by one.
func ConnectPauses() func() time.Duration { return connectPauses().NextBackOff }

// Endpoint is the endpoint of the connection; "": it is down.
func (d *DB) Endpoint() string { return d.link.endpoint() }

// PassReads is what a relay does with the requests of a client.
var PassReads = passReads

// WithWaitingProbe sets the time between two probes while a transaction waits for its answer.
func (c Config) WithWaitingProbe(every time.Duration) Config {
	c.waitingProbe = every
	return c
}
