package journal

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// failedOf are n attachments whose delegates' DEL failed, each of another pod unless one is named.
func failedOf(n int, namespace, pod string) (all []Summary) {
	for i := range n {
		s := agentapi.Sandbox{ContainerID: fmt.Sprint(namespace, pod, i), Interface: "eth0", Namespace: namespace, Pod: pod, UID: "u-" + pod}
		if pod == "" {
			s.Pod, s.UID = "p"+strconv.Itoa(i), "u"+strconv.Itoa(i)
		}
		all = append(all, Summary{Sandbox: s, FailedAttempts: 1})
	}
	return all
}

// What a tenant's failing networks leave on a node is limited by pod and by namespace, and the node's own limit refuses
// only those that have a part in it: no tenant uses up what another one may need.
func TestBoundaryFailedDELsAreLimitedFairly(t *testing.T) {
	many := func(namespaces, each int) (all []Summary) {
		for i := range namespaces {
			all = append(all, failedOf(each, "ns"+strconv.Itoa(i), "")...)
		}
		return all
	}
	full := many(MaxFailedOfNode/16, 16)
	web := agentapi.Sandbox{ContainerID: "new", Interface: "eth0", Namespace: "shop", Pod: "web", UID: "u-web"}
	other := web
	other.UID = "u-other"
	inFull := web
	inFull.Namespace = "ns3"
	again := web
	again.ContainerID = "shopweb0"
	forgotten := failedOf(MaxFailedOfPod, "shop", "web")
	forgotten[0].Forgotten = true
	healthy := failedOf(MaxFailedOfPod, "shop", "web")
	healthy[0].FailedAttempts = 0
	for _, tt := range []struct {
		name     string
		attached []Summary
		of       *agentapi.Sandbox
		want     string // of the error; "": none
	}{
		{"nothing failed", nil, &web, ""},
		{"less than a pod's limit", failedOf(MaxFailedOfPod-1, "shop", "web"), &web, ""},
		{"a pod's limit", failedOf(MaxFailedOfPod, "shop", "web"), &web, "pod shop/web has 4 earlier sandboxes with a failed delegate DEL; a pod may have at most 4"},
		{"a pod's limit, another pod of the name", failedOf(MaxFailedOfPod, "shop", "web"), &other, ""},
		{"a pod's limit, another namespace", failedOf(MaxFailedOfPod, "depot", "web"), &web, ""},
		{"one of them is the sandbox itself", failedOf(MaxFailedOfPod, "shop", "web"), &again, ""},
		{"one was given up", forgotten, &web, ""},
		{"one did not fail", healthy, &web, ""},
		{"less than a namespace's limit", failedOf(MaxFailedOfNamespace-1, "shop", ""), &web, ""},
		{"a namespace's limit", failedOf(MaxFailedOfNamespace, "shop", ""), &web, "namespace shop has 32 sandboxes with a failed delegate DEL on this node; a namespace may have at most 32"},
		{"a namespace's limit, another namespace", failedOf(2*MaxFailedOfNamespace, "depot", ""), &web, ""},
		{"the node's limit", full, &inFull, "this node has 512 sandboxes with a failed delegate DEL, 16 of them of namespace ns3; a node may have at most 512"},
		{"the node's limit, a namespace without a part in it", full, &web, ""},
		{"less than the node's limit", full[1:], &inFull, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckFailed(tt.attached, tt.of)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("it is allowed")
			}
			code, msg, details := conf.Describe(err)
			if code != conf.CodeDelegateFailed || !strings.HasPrefix(msg, tt.want) || !strings.Contains(details, "kubectl multinet forget") {
				t.Errorf("%d %q (%s), want %q", code, msg, details, tt.want)
			}
		})
	}
}

// A file of release/ is what older plugins write, or an entry of the journal that was renamed, or nothing that says
// more than its name.
func TestBoundaryReleasesOfEveryForm(t *testing.T) {
	const port = `{"name":"shop/web/net1","uuid":"p-1","claims":["c-1"]}`
	for _, tt := range []struct {
		name, text string
		planned    bool
		ports      int
		damaged    bool
	}{
		{"a release", `{"version":1,"containerID":"c1","interface":"eth0","planned":true,"ports":[` + port + `]}`, true, 1, false},
		{"an entry", oneEntry("c1", `,"plan":{"interfaces":[{"name":"net1","port":`+port+`}],"delegates":[{"name":"net2"}]},"begun":1`), true, 1, false},
		{"an intent", oneEntry("c1", ""), false, 0, false},
		{"an entry without ports", oneEntry("c1", `,"plan":{"delegates":[{"name":"net2"}]}`), true, 0, false},
		{"empty", "", false, 0, false},
		{"half", oneEntry("c1", "")[:40], false, 0, true},
		{"another's release", `{"version":1,"containerID":"c2","interface":"eth0","planned":true}`, false, 0, true},
		{"another's entry", oneEntry("c2", ""), false, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, damaged := ParseRelease("c1@eth0", []byte(tt.text))
			if r.ID() != "c1@eth0" || r.Planned != tt.planned || len(r.Ports) != tt.ports || damaged != tt.damaged {
				t.Errorf("%+v, damaged: %t", r, damaged)
			}
			if tt.ports > 0 && (r.Ports[0].UUID != "p-1" || len(r.Ports[0].Claims) != 1) {
				t.Errorf("ports %+v", r.Ports)
			}
		})
	}
}

// After the wall clock was set back, attempts before that are in the future. Each failed DEL has its turn all the same.
func TestFailedDELsTakeTurnsWhenTheClockIsSetBack(t *testing.T) {
	files := map[string]string{}
	for _, id := range []string{"c1", "c2", "c3"} {
		files["attached/"+id+"@eth0"], files["attached/"+id+"@eth0"+FailedSuffix] = oneEntry(id, ""), ""
	}
	d := Dir(state(t, files))
	tried := func(id string, at time.Time) {
		mark := d.FailedMark(&agentapi.Sandbox{ContainerID: id, Interface: "eth0"})
		if err := os.Chtimes(mark, at, at); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	tried("c1", now.Add(-time.Minute))
	tried("c2", now.Add(time.Hour))
	tried("c3", now.Add(time.Hour-time.Minute))
	var turns []string
	for i := range 4 {
		next, _ := d.NextFailed(&agentapi.Sandbox{})
		turns = append(turns, next.ContainerID)
		tried(next.ContainerID, now.Add(time.Duration(i-10)*time.Second)) // it fails again
	}
	if got := strings.Join(turns, " "); got != "c2 c3 c1 c2" {
		t.Errorf("the turns are %s", got)
	}
}
