package ovndb

import "time"

// Endpoints are endpoints without TLS.
func Endpoints(all ...string) *endpoints { return &endpoints{all: all} }

// Look is what callers who wait do.
func (p *endpoints) Look(since time.Time) []Failure { return p.look(since) }
