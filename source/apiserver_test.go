package source

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer is an API server that stores objects: with label selectors, watches, and conflicts of writes. It speaks HTTP
// to the real clients.
type apiServer struct {
	mu       sync.Mutex
	changed  *sync.Cond
	version  int
	objects  map[string]*unstructured.Unstructured // by "<resource>/<namespace>/<name>"
	history  []storedChange
	requests []string // "<verb> <resource>", without those of the informers of nodes and policies
	writes   []string // "<verb> <namespace>/<name>"

	services, backends, entries, claims chan string // what the source tells
}

type storedChange struct {
	resource string
	version  int
	was, is  *unstructured.Unstructured
}

// object reads an object from JSON.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

// put stores an object, as another program does. nil deletes it.
func (s *apiServer) put(resource, namespace, name string, o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(resource, namespace, name, o)
}

func (s *apiServer) store(resource, namespace, name string, o *unstructured.Unstructured) {
	key := resource + "/" + namespace + "/" + name
	was := s.objects[key]
	s.version++
	if o == nil {
		delete(s.objects, key)
		o = &unstructured.Unstructured{}
	} else {
		o = o.DeepCopy()
		o.SetNamespace(namespace)
		o.SetName(name)
		o.SetResourceVersion(strconv.Itoa(s.version))
		switch {
		case o.GetUID() == "" && was != nil:
			o.SetUID(was.GetUID())
		case o.GetUID() == "":
			o.SetUID(types.UID(fmt.Sprint("u", s.version)))
		}
		s.objects[key] = o
	}
	s.history = append(s.history, storedChange{resource, s.version, was, o})
	s.changed.Broadcast()
}

// edit changes a stored object, as another program does.
func (s *apiServer) edit(resource, namespace, name string, do func(*unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[resource+"/"+namespace+"/"+name].DeepCopy()
	do(o)
	s.store(resource, namespace, name, o)
}

func (s *apiServer) get(resource, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[resource+"/"+namespace+"/"+name]
}

// wrote returns the writes since the last time.
func (s *apiServer) wrote() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.writes, ", ")
	s.writes = nil
	return text
}

func (s *apiServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	words := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/"), "/")
	words = words[slices.IndexFunc(words, func(w string) bool { return w[0] == 'v' })+1:] // behind group and version
	namespace, name := "", ""
	if words[0] == "namespaces" && len(words) > 2 {
		namespace, words = words[1], words[2:]
	}
	if len(words) > 1 {
		name = words[1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+words[0])
	if name == "" && r.Method == http.MethodGet {
		s.collection(rw, r, words[0])
		return
	}
	if r.Method != http.MethodGet {
		s.writes = append(s.writes, fmt.Sprintf("%s %s/%s", r.Method, namespace, name))
	}
	o, code, reason := s.one(r, words[0], namespace, name)
	if reason != "" {
		rw.WriteHeader(code)
		fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`, reason, code, reason)
		return
	}
	_ = json.NewEncoder(rw).Encode(o.Object)
}

// one serves a request for one object.
func (s *apiServer) one(
	r *http.Request, resource, namespace, name string,
) (o *unstructured.Unstructured, code int, reason metav1.StatusReason) {
	sent := &unstructured.Unstructured{Object: map[string]any{}}
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&sent.Object)
	}
	if name == "" {
		name = sent.GetName()
	}
	present := s.objects[resource+"/"+namespace+"/"+name]
	switch {
	case r.Method == http.MethodPost && present != nil:
		return nil, http.StatusConflict, metav1.StatusReasonAlreadyExists
	case r.Method != http.MethodPost && present == nil:
		return nil, http.StatusNotFound, metav1.StatusReasonNotFound
	}
	version := sent.GetResourceVersion()
	if r.Method == http.MethodDelete {
		version, _, _ = unstructured.NestedString(sent.Object, "preconditions", "resourceVersion")
		sent = nil
	}
	if r.Method == http.MethodPatch {
		patched := present.DeepCopy()
		merge(patched.Object, sent.Object)
		sent = patched
	}
	if version != "" && version != present.GetResourceVersion() {
		return nil, http.StatusConflict, metav1.StatusReasonConflict
	}
	if r.Method != http.MethodGet {
		s.store(resource, namespace, name, sent)
	}
	if now := s.objects[resource+"/"+namespace+"/"+name]; now != nil {
		return now, http.StatusOK, ""
	}
	return present, http.StatusOK, ""
}

// collection serves a list or a watch.
func (s *apiServer) collection(rw http.ResponseWriter, r *http.Request, resource string) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	matches := func(o *unstructured.Unstructured) bool {
		return o != nil && o.Object != nil && selector.Matches(labels.Set(o.GetLabels()))
	}
	if r.URL.Query().Get("watch") == "" {
		items := []any{}
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if o := s.objects[key]; strings.HasPrefix(key, resource+"/") && matches(o) {
				items = append(items, o.Object)
			}
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": items,
		})
		return
	}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-r.Context().Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		case <-stop:
		}
	}()
	flush := http.NewResponseController(rw)
	for at := 0; r.Context().Err() == nil; s.changed.Wait() {
		for ; at < len(s.history); at++ {
			c := s.history[at]
			if c.resource != resource || c.version <= since || !matches(c.was) && !matches(c.is) {
				continue
			}
			kind, o := "MODIFIED", c.is
			if !matches(c.was) {
				kind = "ADDED"
			} else if !matches(c.is) {
				kind, o = "DELETED", c.was.DeepCopy()
				o.SetResourceVersion(strconv.Itoa(c.version))
			}
			_ = json.NewEncoder(rw).Encode(map[string]any{"type": kind, "object": o.Object})
		}
		_ = flush.Flush()
	}
}

func newAPIServer() *apiServer {
	s := &apiServer{objects: map[string]*unstructured.Unstructured{}, services: make(chan string, 1000), backends: make(chan string, 1000), entries: make(chan string, 1000),
		claims: make(chan string, 1000)}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// start runs the source of a controller on the server.
func (s *apiServer) start(t *testing.T) *Kube {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nads, err := nadclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKube(core, nads, "", Changes{
		Policy: func(string) {}, Pod: func(string, string, bool) {}, PodGone: func(string, string) {},
		Namespace: func(string) {}, Ports: func(string) {}, Entries: func() { s.entries <- "" },
		IPAMClaim: func(namespace, name string) { s.claims <- namespace + "/" + name },
		Service:   func(namespace, name string) { s.services <- namespace + "/" + name },
		Backend:   func(namespace, name string) { s.backends <- namespace + "/" + name },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	start(t, k.Run)
	return k
}
