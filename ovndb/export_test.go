package ovndb

import "time"

// Endpoints are endpoints without TLS.
func Endpoints(all ...string) *endpoints { return &endpoints{all: all} }

// Check is the check on behalf of waiting callers.
func (p *endpoints) Check(since time.Time) []Failure { return p.check(since) }
