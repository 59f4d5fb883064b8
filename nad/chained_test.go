package nad

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

func chainedNAD(plugins string) string {
	return `{"cniVersion":"1.0.0","plugins":[{"type":"ovn-multinet","subnets":"10.1.0.0/24"}` + plugins + `]}`
}

func resolveOne(t *testing.T, rules Rules, config, keys string) (*Attachment, error) {
	t.Helper()
	requests, err := ParseRequests(map[string]string{conf.NetworksAnnotation: `[{"name":"blue"` + keys + `}]`}, "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Resolve(context.Background(), "shop", requests, rules, always(config, netmodel.NAD{}))
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// Plugins behind ours get the list without ours, and what the pod requests if they declare that they take it.
func TestChainedPlugins(t *testing.T) {
	tuning := `,{"type":"tuning","capabilities":{"mac":true,"bandwidth":true}},{"type":"sbr"}`
	rules := Rules{Allowed: []string{"tuning", "sbr"}, AllowedIPAM: []string{}}
	for _, tt := range []struct{ name, plugins, keys, want string }{
		{"none", "", "", ""},
		{"nothing requested", tuning, "", `{}`},
		{"a MAC and an address", tuning, `,"mac":"02:00:00:00:00:01","ips":["10.1.0.7"]`, `{"mac":"02:00:00:00:00:01"}`},
		{"a MAC that no plugin takes", `,{"type":"sbr"}`, `,"mac":"02:00:00:00:00:01"`, `{}`},
		{"a rate", tuning, `,"bandwidth":{"ingressRate":1000}`, `{"bandwidth":{"ingressRate":1000,"ingressBurst":1000}}`},
		{"our own cni-args", tuning, `,"cni-args":{"securityProfiles":["web"]}`, `{}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := resolveOne(t, rules, chainedNAD(tt.plugins), tt.keys)
			if err != nil {
				t.Fatal(err)
			}
			if a.Network == nil || (a.Delegate != nil) != (tt.want != "") {
				t.Fatalf("%+v", a)
			}
			if tt.want == "" {
				return
			}
			if strings.Contains(string(a.Delegate.Conflist), "ovn-multinet") || strings.Contains(string(a.Delegate.Conflist), "web") ||
				!strings.Contains(string(a.Delegate.Conflist), `"name":"blue"`) {
				t.Errorf("they get %s", a.Delegate.Conflist)
			}
			if got := showCapabilities(a.Delegate); got != tt.want {
				t.Errorf("they are asked for %s, want %s", got, tt.want)
			}
		})
	}
}

func showCapabilities(d *Delegate) string {
	var words []string
	for key, value := range d.Capabilities {
		words = append(words, `"`+key+`":`+string(value))
	}
	slices.Sort(words)
	return "{" + strings.Join(words, ",") + "}"
}

func TestChainedPluginsAreRefused(t *testing.T) {
	rules := Rules{Allowed: []string{"tuning"}, AllowedIPAM: []string{}}
	for _, tt := range []struct {
		plugins, keys string
		code          uint
		want, details string
	}{
		{`,{"type":"sbr"}`, "", conf.CodeNotAllowed, `interface net1: network shop/blue: delegate "sbr" is not allowed on this node`, "allowedDelegates"},
		{`,{"type":"tuning","ipam":{"type":"host-local"}}`, "", conf.CodeNotAllowed,
			`interface net1: network shop/blue: delegate "host-local" is not allowed as ipam on this node`, "allowedIPAM"},
		{`,{"type":"tuning"}`, `,"bandwidth":{"ingressRate":1000}`, conf.CodeInvalidConfig,
			`interface net1: bandwidth on network shop/blue: it is not served on OVN networks`, "annotation"},
		{`,{"type":"tuning","args":"x"}`, "", conf.CodeInvalidConfig, `interface net1: network shop/blue: spec.config: plugins[1]: "args" is not an object`, "spec.config"},
	} {
		_, err := resolveOne(t, rules, chainedNAD(tt.plugins), tt.keys)
		if err == nil {
			t.Errorf("%s is taken", tt.plugins)
			continue
		}
		if code, msg, details := conf.Describe(err); code != tt.code || msg != tt.want || !strings.Contains(details, tt.details) {
			t.Errorf("got  %d %s (%s)\nwant %d %s (%s)", code, msg, details, tt.code, tt.want, tt.details)
		}
	}
}
