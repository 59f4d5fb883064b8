package nbtest

import (
	"errors"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// MustRemove deletes a network, and fails if Delete returns an error.
func (w *World) MustRemove(t *testing.T, id string, force bool) {
	t.Helper()
	if err := w.Networks.Delete(WithLimit(t), id, force); err != nil {
		t.Error(err)
	}
}

// WantInUse fails unless Delete keeps shop/blue and returns an InUse with that text.
func (w *World) WantInUse(t *testing.T, text string) {
	t.Helper()
	err := w.Networks.Delete(WithLimit(t), "shop/blue", false)
	if inUse, ok := errors.AsType[*ovnnet.InUse](err); !ok || inUse.Error() != text {
		t.Errorf("%v, want %s", err, text)
	}
}

// WantFenced fails unless shop/blue has this configuration and takes no ports.
func (w *World) WantFenced(t *testing.T, config string) {
	t.Helper()
	w.WantAccepted(t, AcceptedWith(config, ""))
}

// Pods inserts the ports of n pods on shop/blue.
func (w *World) Pods(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		w.Pod(t, "blue", Sprint("10.1.0.%d", 10+i), Sprint("p%d", i+1), "net1")
	}
}
