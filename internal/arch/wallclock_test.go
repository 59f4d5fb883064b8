package arch

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// wallClock are the names by which Go gets or makes a time without a monotonic reading: a time of the wall clock, which
// an operator or NTP may set forward or back. time.Now has both readings, and its differences are monotonic.
var wallClock = []string{
	"ModTime", "Unix", "UnixNano", "UnixMilli", "UnixMicro", "UTC", "Local",
	"CreationTimestamp", "RenewTime", "AcquireTime", "NotAfter", "NotBefore", "CLOCK_REALTIME",
	"Parse(time)", "Date(time)",
}

// onWallClock are the uses of the wall clock, and why nothing is lost when the clock is set.
var onWallClock = map[string]string{
	"agent/pendingrelease.go ModTime":          "compared for equality: has the file changed?",
	"node/install/install.go ModTime":          "compared for equality: has the plugin's binary changed?",
	"node/install/version.go ModTime":          "compared for equality: has another plugin's binary changed?",
	"node/install/version.go UnixNano":         "the same, in a text",
	"ovnnet/ended/services.go Unix":            "when an entry is deleted that agents have read long ago: early, or late. One in the future by more than this time is deleted too",
	"node/journal/entry.go ModTime":            "shown to the operator",
	"node/journal/failed.go ModTime":           "the turns of failed DELs; an attempt in the future is the oldest",
	"source/manifests.go ModTime":              "equality; is a file older than 2 s? One in the future is read again",
	"source/knownnads.go CreationTimestamp":    "the API server's clock alone; decides between NADs before one is accepted",
	"source/knownnads.go Unix":                 "the same",
	"controller/engine/states.go UTC":          "shown to the operator: since when an object is as it is",
	"source/kubepolicy.go Unix":                "the API server's clock alone; which policies of a namespace are the oldest?",
	"source/kubepolicy.go CreationTimestamp":   "the same",
	"controller/entries/states.go UTC":         "shown to the operator: since when a condition is what it is",
	"source/entries.go Unix":                   "the API server's clock alone; which of two objects of one entry is the older one?",
	"source/entries.go CreationTimestamp":      "the same",
	"kubectl/check/authority.go NotAfter":      "X.509 has the wall clock only; the message has the times, so that a wrong clock shows",
	"kubectl/check/authority.go NotBefore":     "the same",
	"kubectl/check/authority.go UTC":           "shown to the operator",
	"kubectl/sysdump/texts.go UTC":             "shown to the developer: when the archive was made",
	"cmd/kubectl-multinet/sysdump.go UTC":      "the name of the archive; an existing file is refused",
	"source/outside.go ModTime":                "equality; was the status of a pod written again?",
	"source/kubeservice.go Unix":               "the API server's clock alone; which Services of a network are the oldest?",
	"source/kubeservice.go CreationTimestamp":  "the same",
	"ovnrun/authority/rotation.go NotAfter":    "X.509 has the wall clock only. A clock that is set back signs certificates that end earlier; one that is set forward makes the next authority early",
	"ovnrun/authority/rotation.go NotBefore":   "the same",
	"ovnrun/authority/rotation.go Parse(time)": "since when a rotation is under way. A clock that is set back prolongs it; one that is set forward ends it early, and nodes that have no new certificate yet get one later",
	"ovnrun/certificate.go NotAfter":           "the same: a certificate is renewed early, or late, when its user refuses it anyway",
	"ovnrun/certificate.go NotBefore":          "the same",
	"source/startup.go CreationTimestamp":      "the API server's clock alone; is a node, or its agent's pod, the younger one?",
	"source/kubenode.go CreationTimestamp":     "kept for source/startup.go",
}

// TestWallClock: the product measures time by the monotonic clock. Only the listed places use the wall clock.
func TestWallClock(t *testing.T) {
	unused := maps.Clone(onWallClock)
	for _, p := range packages(t) {
		if !product(p.path) {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			ast.Inspect(f.File, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				name := s.Sel.Name
				if of, ok := s.X.(*ast.Ident); ok && of.Name == "time" && (name == "Parse" || name == "Date") {
					name += "(time)"
				}
				use := fmt.Sprint(f.path, " ", name)
				if slices.Contains(wallClock, name) && onWallClock[use] == "" {
					t.Errorf("%s: a time of the wall clock; what happens when the clock is set an hour forward, or back?", use)
				}
				delete(unused, use)
				return true
			})
		}
	}
	for use := range unused {
		t.Errorf("%s is listed, and not used", use)
	}
}
