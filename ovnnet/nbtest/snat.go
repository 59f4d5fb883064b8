package nbtest

import (
	"testing"
)

// WantGatewayHas compares the routes and the SNAT rows of r1's gateway.
func (w *World) WantGatewayHas(t *testing.T, routes, nats string) {
	t.Helper()
	if got := w.Routes(t, GwRouter); got != routes {
		t.Errorf("routes %q, want %q", got, routes)
	}
	if got := w.nats(t, GwRouter); got != nats {
		t.Errorf("NAT %q, want %q", got, nats)
	}
}
