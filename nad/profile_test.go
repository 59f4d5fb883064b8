package nad

import (
	"context"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// The profiles of a port are those of its network and those that the pod requests for this interface.
func TestProfilesOfAnAttachment(t *testing.T) {
	requests, err := ParseRequests(networks(
		`[{"name":"n","cni-args":{"securityProfiles":["web-only","db"]}},{"name":"n"},{"name":"n","cni-args":{"securityProfiles":null}}]`), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	get := always(config(`"securityProfiles":["db","audit"]`), netmodel.NAD{})
	attachments, err := Resolve(context.Background(), "shop", requests, Rules{}, get)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"audit", "db", "web-only"}, {"audit", "db"}, {"audit", "db"}} {
		if got := attachments[i].Profiles(); !slices.Equal(got, want) {
			t.Errorf("attachment %d has the profiles %v, want %v", i, got, want)
		}
	}
}
