package netmodel

import (
	"strings"
	"testing"
)

func profiles(t *testing.T, text string) SecurityProfiles {
	t.Helper()
	p, err := ParseSecurityProfiles([]byte(`{"securityProfiles":{` + text + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSecurityProfiles(t *testing.T) {
	all := profiles(t, `"web-only":{"portGroup":"pg_web","namespaces":["shop","team-*"]},"open":{"namespaces":["*"]}`)
	for _, tt := range []struct {
		profile, namespace string
		want               bool
	}{
		{"web-only", "shop", true}, {"web-only", "shop2", false}, {"web-only", "sho", false}, {"web-only", "web", false},
		{"web-only", "team-a", true}, {"web-only", "team-", true}, {"web-only", "team", false}, {"web-only", "a-team-a", false},
		{"web-only", "team-*", true}, // no namespace has such a name
		{"open", "web", true},
	} {
		if got := all[tt.profile].Allows(tt.namespace); got != tt.want {
			t.Errorf("%s for %s: %t", tt.profile, tt.namespace, got)
		}
	}
	for name, group := range map[string]string{"web-only": "pg_web", "open": "open"} {
		again, err := DecodeSecurityProfile(name, all[name].Encode())
		if err != nil || again.PortGroup != group || again.Encode() != all[name].Encode() {
			t.Errorf("%s: %+v, %v", name, again, err)
		}
	}
}

func TestBoundarySecurityProfilesRefuse(t *testing.T) {
	const in = `"web": `
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown key", `"web":{"namespaces":["shop"],"group":"x"}`, in + `unknown key "group"`},
		{"a key in another case", `"web":{"namespaces":["shop"],"PortGroup":"x"}`, in + `unknown key "PortGroup", did you mean "portGroup"?`},
		{"a key twice", `"web":{"namespaces":["shop"],"namespaces":["*"]}`, in + `key "namespaces" is given twice`},
		{"no namespaces", `"web":{}`, in + `namespaces is missing: a list like [shop, "team-*"]`},
		{"a namespace that is none", `"web":{"namespaces":["Shop"]}`, in + `namespaces: "Shop" is no namespace's name, and no beginning of one with "*" after it`},
		{"an empty namespace", `"web":{"namespaces":[""]}`, in + `namespaces: "" is no namespace's name, and no beginning of one with "*" after it`},
		{"a star within", `"web":{"namespaces":["a*b"]}`, in + `namespaces: "a*b" is no namespace's name, and no beginning of one with "*" after it`},
		{"two stars", `"web":{"namespaces":["**"]}`, in + `namespaces: "**" is no namespace's name, and no beginning of one with "*" after it`},
		{"a name that is none", `"a b":{"namespaces":["shop"]}`, `"a b": the name of a profile has ` + profileForm},
		{"a port group that is none", `"web":{"portGroup":"a b","namespaces":["shop"]}`, in + `portGroup: "a b" is no name of a port group: ` + profileForm},
		{"a group of policies", `"web":{"portGroup":"pg_0123456789abcdef0123456789abcdef","namespaces":["shop"]}`,
			in + "portGroup: pg_0123456789abcdef0123456789abcdef is the name of a group of network policies; choose another"},
		{"a group of policies by the profile's name", `"pg_0123456789abcdef0123456789abcdef":{"namespaces":["shop"]}`,
			`"pg_0123456789abcdef0123456789abcdef": portGroup: pg_0123456789abcdef0123456789abcdef is the name of a group of network policies; choose another`},
		{"a null", `"web":null`, in + "null where an object is wanted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseSecurityProfiles([]byte(`{"securityProfiles":{` + tt.text + `}}`))
			if want := "securityProfiles: " + tt.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func FuzzSecurityProfiles(f *testing.F) {
	for _, text := range []string{
		"", "null", "[]", `{"securityProfiles":null}`, `{"securityProfiles":{"web":{"namespaces":["shop","a-*"]}}}`,
		`{"securityProfiles":{"web":{"portGroup":"pg_web","namespaces":["*"]}}}`, `{"securityProfiles":{"a b":null}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseSecurityProfiles([]byte(text))
		if err != nil && (all != nil || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 1024) {
			t.Errorf("%v, %q", all, err)
		}
		for name, p := range all {
			again, err := DecodeSecurityProfile(name, p.Encode())
			if err != nil || again.Encode() != p.Encode() || policyGroup.MatchString(p.PortGroup) || len(p.Namespaces) == 0 {
				t.Errorf("%q: %+v is read again as %+v, %v", name, p, again, err)
			}
		}
	})
}
