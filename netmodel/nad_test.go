package netmodel

import (
	"encoding/json"
	"testing"
	"time"
)

// What the controller writes is read back, and what it did not write is no state.
func TestNetworkState(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	written := func(s NetworkState) string {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	refused := NetworkState{Reason: "subnets: 10.1.0.0/16 cannot become 10.2.0.0/16", Since: since}
	tests := []struct {
		name  string
		state string
		want  NetworkState
		ok    bool
	}{
		{"ready", written(NetworkState{Ready: true, Since: since}), NetworkState{Ready: true, Since: since}, true},
		{"refused", written(refused), refused, true},
		{"as it stands in the annotation", `{"ready":false,"reason":"why","since":"2026-01-02T03:04:05Z"}`, NetworkState{Reason: "why", Since: since}, true},
		{"of a later release", `{"ready":true,"since":"2026-01-02T03:04:05Z","more":1}`, NetworkState{Ready: true, Since: since}, true},
		{"none", "", NetworkState{}, false},
		{"no JSON", "ready", NetworkState{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := NAD{Namespace: "shop", Name: "blue", State: tt.state}
			got, ok := n.NetworkState()
			if got != tt.want || ok != tt.ok {
				t.Errorf("got %+v, %t; want %+v, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestNADID(t *testing.T) {
	if got := (&NAD{Namespace: "shop", Name: "blue"}).ID(); got != "shop/blue" {
		t.Errorf("got %q", got)
	}
}
