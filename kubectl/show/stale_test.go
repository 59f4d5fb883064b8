package show

import (
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

func TestRemains(t *testing.T) {
	of := func(container, pod, why string) agentapi.StaleSandbox {
		return agentapi.StaleSandbox{Sandbox: agentapi.Sandbox{ContainerID: container, Interface: "eth0", Namespace: "shop", Pod: pod}, Why: why}
	}
	whole := of("0123456789abcdef0123456789abcdef", "web", "pod shop/web is gone")
	whole.Ports, whole.HostVeths, whole.Journal = []string{"shop/web/net1", "shop/web/net2"}, []string{"mn0a", "mn0b"}, true
	whole.Delegates = []string{"net3 on shop/ext", "net4 on shop/vf"}
	taken := whole
	taken.ContainerID, taken.Collected = "c2", true
	lost := of("c3", "db", "its network namespace is gone")
	lost.Ports, lost.Collected = []string{"shop/db/net1"}, true
	plug := of("c4", "db", "its network namespace is gone")
	plug.HostVeths = []string{"mn0c"}
	port := of("c5", "db", "its network namespace is gone")
	port.Ports = []string{"shop/db/net1"}
	waits := of("c6", "db", "pod shop/db is gone")
	waits.Journal = true
	told := waits
	told.ContainerID, told.Collected = "c7", true
	const head = "CONTAINER     POD       REASON                         PORTS                        HOST VETH  OTHER PLUGINS                      STATE\n"
	tests := []struct {
		name string
		all  []agentapi.StaleSandbox
		want string
	}{
		{"nothing", nil, "nothing is left on this node of containers that are gone\n"},
		{"nothing, in a list", []agentapi.StaleSandbox{}, "nothing is left on this node of containers that are gone\n"},
		{"all kinds", []agentapi.StaleSandbox{whole, taken, lost, plug, port, waits, told}, head +
			"0123456789ab  shop/web  pod shop/web is gone           shop/web/net1,shop/web/net2  mn0a,mn0b  net3 on shop/ext, net4 on shop/vf  goes when it is seen again\n" +
			"c2            shop/web  pod shop/web is gone           shop/web/net1,shop/web/net2  mn0a,mn0b  net3 on shop/ext, net4 on shop/vf  deleted; the plugin deletes the rest in its next call\n" +
			"c3            shop/db   its network namespace is gone  shop/db/net1                 -          -                                  deleted\n" +
			"c4            shop/db   its network namespace is gone  -                            mn0c       -                                  goes when it is seen again\n" +
			"c5            shop/db   its network namespace is gone  shop/db/net1                 -          -                                  goes when it is seen again\n" +
			"c6            shop/db   pod shop/db is gone            -                            -          -                                  waits for the plugin's next call\n" +
			"c7            shop/db   pod shop/db is gone            -                            -          -                                  deleted; the plugin deletes the rest in its next call\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := StaleSandboxes(&out, tt.all); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestRemainsThatCannotBeWritten(t *testing.T) {
	for name, all := range map[string][]agentapi.StaleSandbox{"nothing": nil, "one": {{Sandbox: agentapi.Sandbox{ContainerID: "c1"}}}} {
		if err := StaleSandboxes(full{}, all); err == nil || err.Error() != "no space" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
