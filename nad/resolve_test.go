package nad

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// always serves one NAD under every name.
func always(config string, def netmodel.NAD) func(context.Context, string, string) (*netmodel.NAD, error) {
	return func(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
		of := def
		of.Namespace, of.Name, of.Config = namespace, name, nadOf(namespace, name, config).Config
		return &of, nil
	}
}

// nadOf is a NAD as its source reads it, with the text of its configuration.
func nadOf(namespace, name, config string) *netmodel.NAD {
	return &netmodel.NAD{
		Namespace: namespace, Name: name, Config: netmodel.ParseConfig(namespace, name, config, netmodel.MaxDelegateConfig),
	}
}

func one(ips ...netip.Prefix) []Request {
	return []Request{{Namespace: "shop", Name: "blue", Interface: "net1", IPs: ips}}
}

// A NAD that only its finalizer holds takes no new pods, or it would never go.
func TestResolveRefusesWhatIsBeingDeleted(t *testing.T) {
	valid := config(`"subnets":"10.1.0.0/24"`)
	for name, tt := range map[string]struct{ text, state, want string }{
		"as it should be": {text: valid},
		"broken besides":  {text: "{"},
		"with ports": {text: valid, state: `{"reason":"being deleted, used by pod shop/a and 7 more ports"}`,
			want: ", used by pod shop/a and 7 more ports"},
		"was refused before": {text: valid, state: `{"reason":"router: subnet overlaps"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(context.Background(), "shop", one(), Rules{},
				always(tt.text, netmodel.NAD{Deleting: true, HasFinalizer: true, State: tt.state}))
			if err == nil {
				t.Fatalf("it is taken: %+v", got)
			}
			code, msg, details := conf.Describe(err)
			want := "interface net1: network shop/blue is being deleted" + tt.want
			if code != conf.CodeNetworkNotFound || msg != want || !strings.Contains(details, "apply its NetworkAttachmentDefinition again") {
				t.Errorf("got  %d %s (details %q)\nwant 101 %s", code, msg, details, want)
			}
		})
	}
}

// What the controller says against a network goes with every attachment to it, for the one whose port is refused.
func TestResolveHandsTheRefusalOn(t *testing.T) {
	tests := []struct {
		name  string
		state string
		want  string
	}{
		{"not said anything yet", "", ""},
		{"ready", `{"ready":true,"since":"2026-01-02T03:04:05Z"}`, ""},
		{"ready, with a warning", `{"ready":true,"reason":"routes[0]: nobody has 10.1.0.1","since":"2026-01-02T03:04:05Z"}`, ""},
		{"refused", `{"ready":false,"reason":"mtu: 1400 is not 1300","since":"2026-01-02T03:04:05Z"}`, "mtu: 1400 is not 1300"},
		{"no state that can be read", "refused", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := slices.Concat(one(), []Request{{Namespace: "shop", Name: "blue", Interface: "net2"}})
			got, err := Resolve(context.Background(), "shop", requests, Rules{}, always(config(""), netmodel.NAD{State: tt.state}))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 2 || got[0].Refusal != tt.want || got[1].Refusal != tt.want {
				t.Errorf("got %+v, want the refusal %q twice", got, tt.want)
			}
		})
	}
}

// The agent resolves a pod's requests again when another configuration is in force than it read at first. Then they
// must still be what the pod asked for, not what the first answer made of it.
func TestResolveKeepsRequests(t *testing.T) {
	requests := one(netip.PrefixFrom(netip.MustParseAddr("10.1.0.7"), -1), netip.PrefixFrom(netip.MustParseAddr("fd01::7"), -1))
	for _, bits := range []int{24, 16} {
		subnets := fmt.Sprintf(`"subnets":"10.1.0.0/%d,fd01::/%d"`, bits, 4*bits)
		got, err := Resolve(context.Background(), "shop", requests, Rules{}, always(config(subnets), netmodel.NAD{}))
		if err != nil {
			t.Fatal(err)
		}
		want := []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.1.0.7"), bits), netip.PrefixFrom(netip.MustParseAddr("fd01::7"), 4*bits)}
		if !slices.Equal(got[0].IPs, want) {
			t.Errorf("in /%d: %v, want %v", bits, got[0].IPs, want)
		}
		for _, asked := range requests[0].IPs {
			if asked.Bits() >= 0 {
				t.Errorf("in /%d: the pod's wish became %v", bits, asked)
			}
		}
	}
}
