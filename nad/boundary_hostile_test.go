package nad

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/internal/hostile"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// asPlugin is a plugin's configuration as a plugin written in Go reads it.
type asPlugin struct {
	Type string `json:"type"`
	IPAM struct {
		Type string `json:"type"`
	} `json:"ipam"`
}

// Of 10,000 pods of a hostile tenant, each with NADs of the tenant's, none has a plugin run that the node does not list, and each
// refusal is one short line with a code.
func TestBoundaryHostileNADs(t *testing.T) {
	delegates, ipam := delegateconf.Shipped()
	rules := Rules{Isolated: true, Allowed: delegates, AllowedIPAM: ipam}
	refused, passed, run := 0, 0, 0
	for seed := range uint64(10_000) {
		tenant := hostile.New(seed)
		configs := map[string]string{"a": tenant.NAD(), "b": tenant.NAD(), "c": tenant.NAD()}
		get := func(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
			config, found := configs[name]
			if !found || namespace != "shop" {
				return nil, netmodel.ErrNotFound
			}
			return nadOf(namespace, name, config), nil
		}
		requests, err := ParseRequests(map[string]string{conf.NetworksAnnotation: tenant.Annotation()}, "shop", "eth0")
		var attachments []Attachment
		if err == nil {
			attachments, err = Resolve(t.Context(), "shop", requests, rules, get)
		}
		if err != nil {
			refused++
			code, msg, _ := conf.Describe(err)
			if code == conf.CodeInternal || len(msg) > 2<<10 || strings.ContainsAny(msg, "\n\r\x00") || !utf8.ValidString(msg) {
				t.Errorf("seed %d: code %d, message %q", seed, code, msg)
			}
			continue
		}
		passed++
		for _, a := range attachments {
			if a.Delegate == nil {
				continue
			}
			var list struct{ Plugins []json.RawMessage }
			if err := json.Unmarshal(a.Delegate.Conflist, &list); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, text := range list.Plugins {
				var p asPlugin
				err := json.Unmarshal(text, &p)
				run++
				if err != nil || !slices.Contains(delegates, p.Type) || p.IPAM.Type != "" && !slices.Contains(ipam, p.IPAM.Type) {
					t.Errorf("seed %d: a plugin would read %+v (%v) from %s", seed, p, err, text)
				}
			}
		}
	}
	t.Attr("boundary.hostile-pods", strconv.Itoa(refused+passed))
	t.Attr("boundary.hostile-pods-refused", strconv.Itoa(refused))
	if passed < 100 || run < 100 || refused < 100 {
		t.Errorf("%d pods passed with %d plugins and %d were refused: the tenant does not try hard", passed, run, refused)
	}
}
