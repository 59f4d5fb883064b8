package sysdump

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// world is an API server in this process: without a network, so that the time of a test may be a bubble's.
type world struct {
	t     *testing.T
	file  string
	most  bounds
	lists map[string][]map[string]any // by path
	logs  map[string]string           // by "<pod>/<container>", with "/previous" behind it

	mu       sync.Mutex
	requests []string
	// answer answers a request in place of the above, if it returns true.
	answer  func(w http.ResponseWriter, r *http.Request) bool
	cuts    bool // an answer that is shorter than its Content-Length ends as a connection does
	outputs []Output
	timeout time.Duration
	scope   string
}

func newWorld(t *testing.T) *world {
	return &world{t: t, file: filepath.Join(t.TempDir(), "dump.tar.gz"), most: usual, timeout: time.Minute,
		lists: map[string][]map[string]any{}, logs: map[string]string{}}
}

// add adds an object, as JSON, to a list.
func (w *world) add(list, text string) {
	w.t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		w.t.Fatalf("%v: %s", err, text)
	}
	w.lists[list] = append(w.lists[list], o)
}

// RoundTrip answers a request of the client. A request that ends before its answer has an error, as with a network.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	w.ServeHTTP(recorder, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	answer := recorder.Result()
	if w.cuts && recorder.Header().Get("Content-Length") != "" {
		answer.Body = io.NopCloser(io.MultiReader(answer.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
	}
	return answer, nil
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.requests = append(w.requests, r.URL.String())
	w.mu.Unlock()
	if w.answer != nil && w.answer(rw, r) {
		return
	}
	switch {
	case r.URL.Path == "/version":
		_, _ = io.WriteString(rw, `{"gitVersion":"v1.34.4"}`)
	case strings.HasSuffix(r.URL.Path, "/log"):
		key := path.Base(path.Dir(r.URL.Path)) + "/" + r.URL.Query().Get("container")
		if r.URL.Query().Get("previous") == "true" {
			key += "/previous"
		}
		_, _ = io.WriteString(rw, ofLog(w.logs[key], r.URL.Query()))
	default:
		_ = json.NewEncoder(rw).Encode(map[string]any{"metadata": map[string]any{}, "items": w.lists[r.URL.Path]})
	}
}

// ofLog returns what kubelet sends of a log: of its last lines the first bytes.
func ofLog(text string, options url.Values) string {
	if n, err := strconv.Atoi(options.Get("tailLines")); err == nil {
		lines := strings.SplitAfter(text, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		text = strings.Join(lines[max(0, len(lines)-n):], "")
	}
	if n, err := strconv.Atoi(options.Get("limitBytes")); err == nil {
		text = text[:min(len(text), n)]
	}
	return text
}

// refuse answers as an API server to a user without a right.
func refuse(rw http.ResponseWriter, r *http.Request) {
	resource := schema.GroupResource{Resource: path.Base(r.URL.Path)}
	status := apierrors.NewForbidden(resource, "", errors.New("no right")).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	rw.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(rw).Encode(status)
}

func (w *world) config() Config {
	w.t.Helper()
	core, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: w, QPS: 1000, Burst: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return Config{Client: core.CoreV1().RESTClient(), File: w.file, Timeout: w.timeout, Outputs: w.outputs,
		Namespace: w.scope}
}

// write writes the archive, and returns it with the content of its files.
func (w *world) write() (*Result, map[string]string) {
	w.t.Helper()
	result, err := write(w.t.Context(), w.config(), w.most)
	if err != nil {
		w.t.Fatal(err)
	}
	return result, w.read()
}

// read unpacks the archive.
func (w *world) read() map[string]string {
	w.t.Helper()
	packed, err := os.ReadFile(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		w.t.Fatal(err)
	}
	files := map[string]string{}
	for all := tar.NewReader(unzipped); ; {
		header, err := all.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			w.t.Fatal(err)
		}
		text, err := io.ReadAll(all)
		if err != nil {
			w.t.Fatal(err)
		}
		name, inside := strings.CutPrefix(header.Name, "dump/")
		if !inside || header.Mode != 0o600 {
			w.t.Errorf("the archive has %s with mode %o", header.Name, header.Mode)
		}
		files[name] = string(text)
	}
}

// alone fails if the folder has anything but the files.
func (w *world) alone(files ...string) {
	w.t.Helper()
	all, err := os.ReadDir(filepath.Dir(w.file))
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name())
	}
	if strings.Join(names, " ") != strings.Join(files, " ") {
		w.t.Errorf("the folder has %q, want %q", names, files)
	}
}

// has fails if a text does not have one of the words.
func has(t *testing.T, name, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not have %q:\n%s", name, word, text)
		}
	}
}

// hang waits for the end of a request.
func hang(r *http.Request) { <-r.Context().Done() }

const (
	podsPath = "/api/v1/namespaces/ovn-multinet/pods"
	agentPod = `{"metadata":{"name":"agent-a","namespace":"ovn-multinet","labels":{"app":"ovn-multinet-agent"}},` +
		`"spec":{"nodeName":"a"},"status":{"containerStatuses":[` +
		`{"name":"agent","containerID":"x","ready":true,"state":{"running":{}}}]}}`
)
