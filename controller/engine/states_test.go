package engine

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// TestStateText: the same state is no news, in whatever form the source has it, and keeps its time.
func TestStateText(t *testing.T) {
	const since = "2026-01-02T03:04:05Z"
	for name, tt := range map[string]struct {
		former string
		news   bool
	}{
		"the same":           {`{"ready":false,"reason":"no","since":"` + since + `"}`, false},
		"the same in a file": {"{\n  \"ready\": false,\n  \"reason\": \"no\",\n  \"since\": \"" + since + "\"\n}", false},
		"another reason":     {`{"ready":false,"reason":"yes","since":"` + since + `"}`, true},
		"without a time":     {`{"ready":false,"reason":"no","since":"0001-01-01T00:00:00Z"}`, true},
		"no state":           {"", true},
		"no JSON":            {"{", true},
	} {
		t.Run(name, func(t *testing.T) {
			state := netmodel.NetworkState{Reason: "no"}
			text, news, err := StateText(tt.former, &state, &state.Since)
			if err != nil || news != tt.news || !news && text != tt.former || state.Since.IsZero() {
				t.Errorf("%q, %t, %v", text, news, err)
			}
			if again, news, _ := StateText(text, &state, &state.Since); news || again != text {
				t.Errorf("the text %q is news: %q", text, again)
			}
		})
	}
}
