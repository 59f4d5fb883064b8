package show

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

func TestLeft(t *testing.T) {
	since := time.Date(2026, 11, 21, 9, 8, 7, 0, time.UTC)
	one := agentapi.FailedDEL{
		Sandbox:        agentapi.Sandbox{ContainerID: "0123456789abcdef0123456789abcdef", Interface: "eth0", Namespace: "shop", Pod: "web"},
		Delegates:      []agentapi.FailedDelegate{{Interface: "net1", Network: "shop/ext"}, {Interface: "net2", Network: "shop/vf", Device: "0000:18:02.5"}},
		FailedAttempts: 3, LastError: "interface net2: network shop/vf: no", Since: since,
	}
	other := agentapi.FailedDEL{
		Sandbox:        agentapi.Sandbox{ContainerID: "c2", Interface: "eth0", Namespace: "depot", Pod: "a"},
		Delegates:      []agentapi.FailedDelegate{{Interface: "net1", Network: "shop/ext"}},
		FailedAttempts: 12, Since: since, Forgotten: true,
	}
	tests := []struct {
		name string
		all  []agentapi.FailedDEL
		want string
	}{
		{"nothing", nil, "nothing is left behind on this node\n"},
		{"nothing, in a list", []agentapi.FailedDEL{}, "nothing is left behind on this node\n"},
		{"two", []agentapi.FailedDEL{one, other}, "" +
			"CONTAINER     POD       NETWORKS                                            TRIES  LAST TRY             STATE        COMPLAINT\n" +
			"0123456789ab  shop/web  net1 on shop/ext,net2 on shop/vf with 0000:18:02.5  3      2026-11-21 09:08:07  tried again  interface net2: network shop/vf: no\n" +
			"c2            depot/a   net1 on shop/ext                                    12     2026-11-21 09:08:07  forgotten    -\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := FailedDELs(&out, tt.all); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// full is a place that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestLeftThatCannotBeWritten(t *testing.T) {
	for name, all := range map[string][]agentapi.FailedDEL{"nothing": nil, "one": {{Sandbox: agentapi.Sandbox{ContainerID: "c1"}}}} {
		if err := FailedDELs(full{}, all); err == nil || err.Error() != "no space" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
