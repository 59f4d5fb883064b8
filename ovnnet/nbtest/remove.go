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

// Fenced is the external_ids of shop/blue's switch when all its NADs are withdrawn.
const Fenced = "gateway_ip=10.1.0.1 ovn-multinet/config=" + Config4 + " ovn-multinet/network=shop/blue"

// WantFenced compares the external_ids of shop/blue's switch.
func (w *World) WantFenced(t *testing.T, want string) {
	t.Helper()
	if got := w.Rows(t)["Logical_Switch"][BlueKey]["external_ids"]; got != want {
		t.Errorf("external_ids %s,\nwant         %s", got, want)
	}
}

// Pods inserts the ports of n pods on shop/blue.
func (w *World) Pods(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		w.Pod(t, "blue", Sprint("10.1.0.%d", 10+i), Sprint("p%d", i+1), "net1")
	}
}
