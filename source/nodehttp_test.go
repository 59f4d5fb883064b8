package source

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// nodeServer is an API server of nodes alone. It speaks HTTP to the real client: lists, and one watch at a time.
type nodeServer struct {
	mu       sync.Mutex
	nodes    []*corev1.Node
	version  int
	refusal  int           // HTTP status of every answer; 0: as it should be
	expired  bool          // the next watch is of a version that is too old
	events   chan string   // what the watch says
	cut      chan struct{} // ends the watch
	requests []string
}

func (s *nodeServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/api/v1/nodes" { // NADs and Events, of which there are none
		rw.WriteHeader(http.StatusNotFound)
		fmt.Fprint(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	s.mu.Lock()
	watch := r.URL.Query().Get("watch") != ""
	word := "list"
	if watch {
		word = "watch from " + r.URL.Query().Get("resourceVersion")
	}
	s.requests = append(s.requests, word)
	refusal, expired := s.refusal, s.expired && watch
	if expired {
		s.expired = false
	}
	list := corev1.NodeList{}
	list.Kind, list.APIVersion, list.ResourceVersion = "NodeList", "v1", fmt.Sprint(s.version)
	for _, n := range s.nodes {
		list.Items = append(list.Items, *n)
	}
	s.mu.Unlock()
	switch {
	case refusal != 0:
		rw.WriteHeader(refusal)
		fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"nodes is forbidden","code":%d}`, refusal)
	case expired:
		fmt.Fprint(rw, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old","code":410}}`)
	case watch:
		s.stream(rw, r)
	default:
		_ = json.NewEncoder(rw).Encode(list)
	}
}

// stream serves a watch until its client goes or it is cut.
func (s *nodeServer) stream(rw http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(rw)
	for _ = flush.Flush(); ; _ = flush.Flush() {
		select {
		case e := <-s.events:
			fmt.Fprintln(rw, e)
		case <-s.cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// say tells the watch of a node, once there is one.
func (s *nodeServer) say(t *testing.T, kind string, n *corev1.Node) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"type": kind, "object": n})
	if err != nil {
		t.Fatal(err)
	}
	s.events <- string(text)
}

// newNodeServer returns the server and the controller's source, which asks it by the real clients.
func newNodeServer(t *testing.T, s *nodeServer, told *calls) *Kube {
	t.Helper()
	s.events, s.cut = make(chan string), make(chan struct{})
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
	k, err := NewKube(core, nads, "", Changes{Nodes: told.changed}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	start(t, k.Run)
	return k
}

// versioned is a node of a version, as the API writes it.
func versioned(name, version string, labels map[string]string) *corev1.Node {
	n := apiNode(name, labels)
	n.Kind, n.APIVersion, n.ResourceVersion = "Node", "v1", version
	return n
}

// A node that goes while the watch is down is missing from the next list: it is told of and answered as if the watch
// had said it.
func TestANodeThatGoesWhileTheWatchIsDown(t *testing.T) {
	s := &nodeServer{version: 5, nodes: []*corev1.Node{versioned("node-1", "3", map[string]string{"zone": "a"}), versioned("node-2", "4", nil)}}
	var told calls
	k := newNodeServer(t, s, &told)
	all := int64(0)
	is := func() string {
		all += told.take()
		return fmt.Sprintf("%s, told %d times", showNodes(k.Nodes(background)), all)
	}
	eventually(t, "node-1 zone=a; node-2, told 2 times", is)
	s.say(t, "MODIFIED", versioned("node-1", "6", map[string]string{"zone": "a"})) // its kubelet says that it lives
	s.say(t, "MODIFIED", versioned("node-2", "7", map[string]string{"zone": "b"}))
	eventually(t, "node-1 zone=a; node-2 zone=b, told 3 times", is)
	s.mu.Lock()
	s.version, s.expired, s.nodes = 9, true, []*corev1.Node{versioned("node-1", "6", map[string]string{"zone": "a"})}
	s.mu.Unlock()
	s.cut <- struct{}{}
	eventually(t, "node-1 zone=a, told 4 times", is)
	s.say(t, "DELETED", versioned("node-1", "10", map[string]string{"zone": "a"}))
	eventually(t, ", told 5 times", is)
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, want := strings.Join(s.requests, ", "), "list, watch from 5, watch from 7, list, watch from 9"; got != want {
		t.Errorf("requests %s, want %s", got, want)
	}
}

// What an operator forgot to allow is in the error: an upgrade may want rights that the older version did without.
func TestNodesThatMayNotBeListed(t *testing.T) {
	s := &nodeServer{refusal: http.StatusForbidden}
	k := newNodeServer(t, s, &calls{})
	const want = "list nodes: context canceled: failed to list *v1.Node: nodes is forbidden"
	eventually(t, want, func() string { return showNodes(k.Nodes(ended())) })
}
