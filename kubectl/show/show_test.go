package show

import "testing"

// TestStateOfANetwork: a network with several NADs shows the first that is not ready, else the first warning.
func TestStateOfANetwork(t *testing.T) {
	ready, warned := NAD{Name: "shop/a", Ready: true}, NAD{Name: "shop/b", Ready: true, Reason: "a fault"}
	refused := NAD{Name: "shop/c", Reason: "refused"}
	for _, tt := range []struct {
		nads []NAD
		want string
	}{
		{nil, "not ready: no NetworkAttachmentDefinition is left of it, it goes with its last port"},
		{[]NAD{ready}, "ready"},
		{[]NAD{warned}, "ready, but a fault"},
		{[]NAD{refused}, "not ready: refused"},
		{[]NAD{ready, ready}, "ready"},
		{[]NAD{ready, warned}, "ready, but shop/b: a fault"},
		{[]NAD{ready, warned, refused}, "not ready: shop/c: refused"},
	} {
		n := Network{NADs: tt.nads}
		n.judge()
		if got := readiness(n.Ready, n.Reason); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.nads, got, tt.want)
		}
	}
}
