package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// podServer is an API server of one pod, which others write to all the time: before each request is served, kubelet
// reports another status and a user another label. It speaks HTTP to the real client.
type podServer struct {
	mu       sync.Mutex
	pod      map[string]any
	requests []string
	podFaults
}

// podFaults is what goes wrong at podServer.
type podFaults struct {
	refusal int // HTTP status of every answer; 0: as it should be
	reads   int // HTTP status of the answer to each GET; 0: as it should be
	// conflicts is how many patches others come before, too often for the API server, which tries a patch five times.
	conflicts int
}

// uidOfPod is the one in podServer.
const uidOfPod = "u1"

func (s *podServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
	s.othersWrite()
	body, err := io.ReadAll(r.Body)
	var sent map[string]any
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &sent)
	}
	rw.Header().Set("Content-Type", "application/json")
	switch {
	case err != nil:
		s.refuse(rw, http.StatusBadRequest)
	case s.refusal != 0:
		s.refuse(rw, s.refusal)
	case r.Method == http.MethodGet && s.reads != 0:
		s.refuse(rw, s.reads)
	case r.Method == http.MethodPatch && s.conflicts > 0:
		s.conflicts--
		s.refuse(rw, http.StatusConflict)
	case r.Method == http.MethodPatch:
		if meta, _ := sent["metadata"].(map[string]any); meta["uid"] != nil && meta["uid"] != uidOfPod {
			s.refuse(rw, http.StatusConflict)
			return
		}
		merge(s.pod, sent)
		fallthrough
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(rw).Encode(s.pod)
	default: // a whole object, in which what others wrote meanwhile is missing
		s.pod = sent
		_ = json.NewEncoder(rw).Encode(s.pod)
	}
}

func (s *podServer) refuse(rw http.ResponseWriter, code int) {
	reason := map[int]string{http.StatusConflict: "Conflict", http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden"}[code]
	rw.WriteHeader(code)
	fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"refused","code":%d}`, reason, code)
}

// othersWrite changes what is not ours.
func (s *podServer) othersWrite() {
	n := fmt.Sprint(len(s.requests))
	meta := s.pod["metadata"].(map[string]any)
	meta["resourceVersion"] = n
	meta["labels"] = map[string]any{"by-a-user": n}
	meta["annotations"].(map[string]any)["by-a-user"] = n
	s.pod["status"] = map[string]any{"phase": "Pending", "podIP": "10.244.1." + n, "conditions": []any{map[string]any{"type": "Scheduled", "status": n}}}
}

// merge is a JSON merge patch (RFC 7396).
func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isObject := value.(map[string]any)
		target, hasObject := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isObject && hasObject:
			merge(target, inner)
		default:
			into[key] = value
		}
	}
}

// newPodServer returns the server and a source that asks it by the real clients.
func newPodServer(t *testing.T) (*podServer, *Kube) {
	t.Helper()
	s := &podServer{pod: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": "shop", "name": "web-0", "uid": uidOfPod, "annotations": map[string]any{nad.StatusAnnotation: "older"}},
	}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nads, err := nadclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKube(core, nads, "", Changes{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s, k
}

// state is the pod as it is now, by way of JSON so that it compares.
func (s *podServer) state(t *testing.T) (pod map[string]any) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.pod)
	if err == nil {
		err = json.Unmarshal(text, &pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// A status is one PATCH of one annotation: what kubelet and users write at the same moment is as they wrote it.
// Conformance: F-11
func TestStatusLeavesOtherWritersAlone(t *testing.T) {
	s, k := newPodServer(t)
	const status = `[{"name":"cbr0","default":true},{"name":"shop/blue","interface":"net1"}]`
	for n := 1; n <= 2; n++ {
		want := s.state(t)
		if err := k.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: uidOfPod}, []byte(status)); err != nil {
			t.Fatal(err)
		}
		meta := want["metadata"].(map[string]any)
		meta["resourceVersion"], meta["labels"] = fmt.Sprint(n), map[string]any{"by-a-user": fmt.Sprint(n)}
		maps.Copy(meta["annotations"].(map[string]any), map[string]any{"by-a-user": fmt.Sprint(n), nad.StatusAnnotation: status})
		want["status"] = map[string]any{"phase": "Pending", "podIP": "10.244.1." + fmt.Sprint(n),
			"conditions": []any{map[string]any{"type": "Scheduled", "status": fmt.Sprint(n)}}}
		if got := s.state(t); !reflect.DeepEqual(got, want) {
			t.Errorf("the pod is %v\nwant       %v", got, want)
		}
	}
	const request = "PATCH /api/v1/namespaces/shop/pods/web-0/status application/merge-patch+json"
	if got := strings.Join(s.requests, ", "); got != request+", "+request {
		t.Errorf("requests %s, want one PATCH a status", got)
	}
}

// A status that is not taken is an error, whatever the reason: the agent fails the ADD by it, and all is undone. Only a
// pod that is gone, or has another UID, is "not found", for which nobody tries again.
// Conformance: F-10
func TestStatusThatIsNotTakenIsAnError(t *testing.T) {
	const once, looked, twice = "PATCH", "PATCH GET", "PATCH GET PATCH"
	for _, tt := range []struct {
		name      string
		faults    podFaults
		uid       string
		gone      bool // the pod is
		requested string
	}{
		{"another pod of the name", podFaults{}, "u0", true, looked},
		{"no pod", podFaults{refusal: http.StatusNotFound}, uidOfPod, true, once},
		{"other writers, each time", podFaults{conflicts: 2}, uidOfPod, false, twice},
		{"other writers, and the pod is gone", podFaults{conflicts: 1, reads: http.StatusNotFound}, uidOfPod, true, looked},
		{"other writers, and the pod cannot be read", podFaults{conflicts: 1, reads: http.StatusForbidden}, uidOfPod, false, looked},
		{"conflict, whatever is asked", podFaults{refusal: http.StatusConflict}, uidOfPod, false, looked},
		{"forbidden", podFaults{refusal: http.StatusForbidden}, uidOfPod, false, once},
		{"webhook that refuses", podFaults{refusal: http.StatusUnprocessableEntity}, uidOfPod, false, once},
		{"server's trouble", podFaults{refusal: http.StatusInternalServerError}, uidOfPod, false, once},
		{"etcd's trouble", podFaults{refusal: http.StatusServiceUnavailable}, uidOfPod, false, once},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, k := newPodServer(t)
			s.podFaults = tt.faults
			err := k.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: tt.uid}, []byte("[]"))
			if err == nil || errors.Is(err, ErrNotFound) != tt.gone {
				t.Errorf("error %v, want one that says whether the pod is gone: %t", err, tt.gone)
			}
			if got := s.status(t); got != "older" {
				t.Errorf("the annotation is %v", got)
			}
			if got := s.verbs(); got != tt.requested {
				t.Errorf("requests %s, want %s", got, tt.requested)
			}
		})
	}
}

// One conflict with other writers is not the pod's end: the status is written by a second patch.
func TestStatusAfterAConflictWithOtherWriters(t *testing.T) {
	s, k := newPodServer(t)
	s.conflicts = 1
	if err := k.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: uidOfPod}, []byte("[]")); err != nil {
		t.Fatal(err)
	}
	if got, verbs := s.status(t), s.verbs(); got != "[]" || verbs != "PATCH GET PATCH" {
		t.Errorf("the annotation is %v after %s", got, verbs)
	}
}

// status is the pod's network-status.
func (s *podServer) status(t *testing.T) any {
	t.Helper()
	return s.state(t)["metadata"].(map[string]any)["annotations"].(map[string]any)[nad.StatusAnnotation]
}

// verbs lists the methods of the requests.
func (s *podServer) verbs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	words := make([]string, len(s.requests))
	for i, r := range s.requests {
		words[i], _, _ = strings.Cut(r, " ")
	}
	return strings.Join(words, " ")
}
