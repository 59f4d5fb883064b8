package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestAddressOfSameController: the error that a fixed address is in use says what to change, if a pod of the same
// Deployment has the address.
func TestAddressOfSameController(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	const choose = "choose another"
	for i, c := range []struct {
		name, kind        string
		old, new          string // the names of the pods' controllers
		ending            bool
		oldHash, newHash  string
		details           string
		uidOfManifestGone bool // the manifest is of a younger pod of the holder's name
	}{
		{name: "new version", kind: "ReplicaSet", old: "web-aaa", new: "web-bbb", oldHash: "aaa", newHash: "bbb",
			details: "both pods are of Deployment web: it starts the new pod before it ends the old one; set strategy: Recreate"},
		{name: "old pod ends", kind: "ReplicaSet", old: "web-aaa", new: "web-bbb", oldHash: "aaa", newHash: "bbb", ending: true,
			details: "both pods are of Deployment web: its old pod is being deleted, and kubelet tries again until it is gone"},
		{name: "two replicas", kind: "ReplicaSet", old: "web-aaa", new: "web-aaa", oldHash: "aaa", newHash: "aaa",
			details: "both pods are of Deployment web: an address or a MAC in its template is for one pod; set replicas: 1"},
		{name: "DaemonSet", kind: "DaemonSet", old: "web", new: "web",
			details: "both pods are of DaemonSet web: it starts the new pod before it ends the old one; set maxSurge: 0"},
		{name: "another Deployment", kind: "ReplicaSet", old: "web-aaa", new: "api-bbb", oldHash: "aaa", newHash: "bbb", details: choose},
		{name: "no controller", details: choose},
		{name: "another pod of the holder's name", kind: "DaemonSet", old: "web", new: "web", uidOfManifestGone: true, details: choose},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := w.sub(t)
			owned := func(p *lab.Pod, name, hash string) {
				p.Meta = map[string]any{}
				if name != "" {
					p.Meta["ownerReferences"] = []any{map[string]any{
						"apiVersion": "apps/v1", "kind": c.kind, "name": name, "uid": name, "controller": true,
					}}
				}
				if hash != "" {
					p.Labels = map[string]string{"pod-template-hash": hash}
				}
				w.Must(p.WriteManifest())
			}
			ip := fmt.Sprintf("10.2.7.%d", i+1)
			networks := `[{"name":"green","ips":["` + ip + `"],"mac":"02:00:00:00:07:0` + fmt.Sprint(i) + `"}]`
			holder := sub.Pod(0, fmt.Sprint("old-", i), networks)
			owned(holder, c.old, c.oldHash)
			_, err := holder.Add(w.Ctx)
			w.Must(err)
			if c.ending {
				holder.Meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
				w.Must(holder.WriteManifest())
			}
			uid := holder.UID
			if c.uidOfManifestGone {
				holder.UID = "younger"
				w.Must(holder.WriteManifest())
			}
			sub.Base = sub.Snapshot()
			for _, of := range []string{networks, strings.Replace(networks, `"ips":["`+ip+`"],`, "", 1)} { // a claim alone
				p := sub.Pod(0, fmt.Sprint("new-", i), of)
				owned(p, c.new, c.newHash)
				_, err = p.Add(w.Ctx)
				sub.refused(err, conf.CodeInUse, "of network shop/green is in use by shop/old-"+fmt.Sprint(i))
				if e, ok := errors.AsType[*types.Error](err); ok && !strings.HasPrefix(e.Details, c.details) {
					t.Errorf("the details are %q, want %q", e.Details, c.details)
				}
				sub.Over(p)
			}
			holder.UID = uid
			w.End(holder)
		})
	}
	w.AsBefore()
}
