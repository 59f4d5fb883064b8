package nad

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// had are the attachments of a pod that started with an annotation.
func had(t *testing.T, networks string) (has []Present) {
	t.Helper()
	requests, err := ParseRequests(map[string]string{conf.NetworksAnnotation: networks}, "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range requests {
		s := &requests[i]
		has = append(has, Present{Interface: s.Interface, Network: s.String(), Digest: s.Digest()})
	}
	return has
}

// edited compares an edited annotation with what a pod has.
func edited(networks string, has []Present) (*Change, error) {
	requests, err := ParseRequestsOf(map[string]string{conf.NetworksAnnotation: networks}, "shop", "eth0", has)
	if err != nil {
		return nil, err
	}
	return Compare(requests, has)
}

// TestCompare: what an edit adds and removes; interfaces keep their names whatever comes or goes before them.
func TestCompare(t *testing.T) {
	tests := []struct{ name, before, after, remove, add string }{
		{"nothing", "blue,green", "blue,green", "", ""},
		{"JSON, spaces, the namespace and names written out", "blue,green@x1", `[ {"interface":"net1","namespace":"shop","name":"blue"},
			{"name":"green", "interface":"x1", "example.org/key":1} ]`, "", ""},
		{"another order", "blue,green", "green@net2,blue@net1", "", ""},
		{"another order, without names", "blue,green", "green,blue", "", ""},
		{"the first goes", "blue,green,six", "green,six", "net1", ""},
		{"one comes before", "blue,green", "six,blue,green", "", "net3"},
		{"one comes in the place of one that goes", "blue,green", "six,green", "net1", "net3"},
		{"all go", "blue,green", "", "net1 net2", ""},
		{"an empty list", "blue", "[]", "net1", ""},
		{"the first comes", "", "blue,green@x1", "", "net1 x1"},
		{"two on one network", "blue", "blue,blue", "", "net2"},
		{"one of two on one network goes", "blue@a,blue@b", "blue@b", "a", ""},
		{"one of two without names goes", "blue,blue", "blue", "net2", ""},
		{"another name", "blue@a", "blue@b", "a", "b"},
		{"one of two with different addresses goes", `[{"name":"blue","ips":["10.1.0.5"]},{"name":"blue","ips":["10.1.0.6"]}]`,
			`[{"name":"blue","ips":["10.1.0.6"]}]`, "net1", ""},
		{"the keys of cni-args in another order", `[{"name":"blue","cni-args":{"a":1,"b":{"c":[1,2],"d":{"e":1,"f":2}}}}]`,
			`[{"name":"blue","cni-args":{"b":{"d":{"f":2,"e":1}, "c":[1,2]},"a":1}}]`, "", ""},
		{"a default name is that of the position", "green@a", "green@a,six", "", "net2"},
		{"a name that a default name would have", "blue", "green@net2,blue,six", "", "net2 net3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			change, err := edited(tt.after, had(t, tt.before))
			if err != nil {
				t.Fatal(err)
			}
			if remove, add := strings.Join(change.Remove, " "), strings.Join(change.Add, " "); remove != tt.remove || add != tt.add {
				t.Errorf("removes %q and adds %q, want %q and %q", remove, add, tt.remove, tt.add)
			}
			if change.Nothing() != (tt.remove+tt.add == "") {
				t.Errorf("nothing to change: %v", change.Nothing())
			}
		})
	}
	change, err := edited("six,green,blue", had(t, "blue,green"))
	if want := map[string]int{"net1": 2, "net2": 1}; err != nil || !reflect.DeepEqual(change.Positions, want) {
		t.Errorf("positions %v, %v, want %v", change.Positions, err, want)
	}
}

// TestChangedIsRefused: an interface that is to be another one is an error that names both.
func TestChangedIsRefused(t *testing.T) {
	for _, tt := range []struct{ before, after, want string }{
		{"blue@x1", "green@x1", "interface x1 is on network shop/blue, and the annotation k8s.v1.cni.cncf.io/networks now says shop/green"},
		{"blue@x1", "other/blue@x1", "says other/blue"},
		{"blue@x1", `[{"name":"blue","interface":"x1","mac":"02:00:00:00:00:01"}]`, "interface x1 on network shop/blue: the annotation"},
		{"blue", `[{"name":"blue","ips":["10.1.0.5"]}]`, "interface net1 on network shop/blue"},
		{`[{"name":"blue","bandwidth":{"ingressRate":1000}}]`, `[{"name":"blue","bandwidth":{"ingressRate":2000}}]`, "something else"},
		{`[{"name":"blue","cni-args":{"a":{"b":9007199254740993}}}]`, `[{"name":"blue","cni-args":{"a":{"b":9007199254740992}}}]`, "something else"},
		{`[{"name":"blue","ipam-claim-reference":"a"}]`, `[{"name":"blue","ipam-claim-reference":"b"}]`, "something else"},
		{"blue,green", "green@net1,blue@net2", "interface net1 is on network shop/blue"},
	} {
		change, err := edited(tt.after, had(t, tt.before))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !conf.HasCode(err, conf.CodeInvalidConfig) {
			t.Errorf("%s → %s: %+v, %v, want an error with %q", tt.before, tt.after, change, err, tt.want)
		}
	}
}

// TestWithoutDigest: of an attachment that an older version made, only the network counts.
func TestWithoutDigest(t *testing.T) {
	has := had(t, `[{"name":"blue","ips":["10.1.0.5"]}]`)
	has[0].Digest = ""
	if change, err := edited(`[{"name":"blue","ips":["10.1.0.5"]},{"name":"green"}]`, has); err != nil || len(change.Remove) > 0 || len(change.Add) != 1 {
		t.Errorf("change %+v, %v", change, err)
	}
	if _, err := edited("green@net1", has); err == nil {
		t.Error("another network is accepted")
	}
}
