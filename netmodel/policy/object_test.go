package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// TestLongestState: a source keeps the longest state that the controller writes. A cut one would be news at each pass.
func TestLongestState(t *testing.T) {
	state := netmodel.NetworkState{Reason: strings.Repeat("<", conf.MaxReason)}
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	o := NewObject("shop", "a", 0, map[string]string{StateAnnotation: string(text)}, []byte("{}"), len(text))
	if o.State != string(text) {
		t.Errorf("of %d bytes, %d are kept", len(text), len(o.State))
	}
}
