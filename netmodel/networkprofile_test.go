package netmodel

import (
	"strings"
	"testing"
)

func TestProfilesOfANetwork(t *testing.T) {
	n, err := ParseNetwork("shop", "blue", []byte(config(`"securityProfiles":["web-only","db","db"]`)))
	if err != nil || strings.Join(n.SecurityProfiles, " ") != "db web-only" {
		t.Fatalf("profiles %v, %v", n, err)
	}
	again, err := ParseAccepted("shop", "blue", []byte(n.Canonical()))
	if err != nil || again.Revision() != n.Revision() || len(again.SecurityProfiles) != 2 {
		t.Errorf("%s is read as %+v, %v", n.Canonical(), again, err)
	}
	plain, err := ParseNetwork("shop", "blue", []byte(config("")))
	if err != nil {
		t.Fatal(err)
	}
	if plain.Revision() == n.Revision() || strings.Contains(plain.Canonical(), "securityProfiles") {
		t.Errorf("the profiles are not part of the revision alone: %s", plain.Canonical())
	}
	if err := plain.CheckEqual(n); err == nil || err.Error() != `securityProfiles: ["db","web-only"] is not (none)` {
		t.Errorf("difference: %v", err)
	}
	if err := plain.CheckChange(n); err != nil {
		t.Errorf("change: %v", err)
	}
	for keys, want := range map[string]string{
		`"securityProfiles":"web"`:    `securityProfiles is no list of names like ["web-only"]`,
		`"securityProfiles":["a b"]`:  `securityProfiles: "a b" is no name of a profile: ` + profileForm,
		`"securityProfiles":["@web"]`: `securityProfiles: "@web" is no name of a profile: ` + profileForm,
		`"securityProfiles":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"]`: "securityProfiles: 17 are more than 16",
	} {
		if _, err := ParseNetwork("shop", "blue", []byte(config(keys))); err == nil || err.Error() != "network shop/blue: "+want {
			t.Errorf("%s\ngot  %v\nwant %s", keys, err, want)
		}
	}
	want := `key "securityProfiles" is of type ovn-multinet, a network of type ovn-k8s-cni-overlay has none`
	if _, err := ParseNetwork("shop", "blue", []byte(overlay(`"securityProfiles":["web"]`))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ovn-kubernetes': %v", err)
	}
}
