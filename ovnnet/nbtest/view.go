package nbtest

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// Views reads the views of all networks, by the networks' IDs.
func (w *World) Views(t *testing.T) map[string]view.Network {
	t.Helper()
	list, err := view.Read(WithLimit(t), w.Networks.DB)
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]view.Network{}
	for _, v := range list {
		byID[v.ID] = v
	}
	return byID
}
