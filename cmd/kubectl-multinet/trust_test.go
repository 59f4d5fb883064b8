package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// trustAPI is an API server with node n1, a controller there, and what the controller says of the authority, read by
// read.
type trustAPI struct {
	mu      sync.Mutex
	states  []map[string]string // nil: the chart does not run OVN
	patches []string
}

func (a *trustAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	missing := func(resource string) any {
		w.WriteHeader(http.StatusNotFound)
		status := apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "x").Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return status
	}
	var answer any
	switch body, _ := io.ReadAll(r.Body); {
	case r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/gone"):
		answer = missing("nodes")
	case r.Method == http.MethodPatch:
		a.patches = append(a.patches, fmt.Sprintf("%s %s", r.URL.Path, body))
		if strings.Contains(r.URL.Path, "/secrets/") && !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			a.patches = append(a.patches, "the answer has the key")
		}
		answer = map[string]any{"metadata": map[string]any{"name": "x"}}
	case strings.HasSuffix(r.URL.Path, "/pods"):
		pods := corev1.PodList{}
		if strings.Contains(r.URL.RawQuery, "spec.nodeName%3Dn1") {
			pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "controller-x"}}}
		}
		answer = pods
	case len(a.states) == 0:
		answer = missing("configmaps")
	default:
		answer = corev1.ConfigMap{Data: a.states[0]}
		if len(a.states) > 1 {
			a.states = a.states[1:]
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestTrust: what the commands write, and what they say until the access has ended.
func TestTrust(t *testing.T) {
	const until = "since 12:00, until 12:12 at the latest"
	at := func(pairs ...string) map[string]string {
		state := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			state[pairs[i]] = pairs[i+1]
		}
		return state
	}
	const label = `{"metadata":{"labels":{"ovn-multinet.node-restriction.kubernetes.io/distrusted":""}}}`
	const rotation = `/api/v1/namespaces/ovn-multinet/secrets/ovn-multinet-ca {"metadata":{"annotations":{"ovn-multinet/rotate":""}}}`
	distrust := func(node string, wait bool) func(context.Context, *authorityOf) error {
		return func(ctx context.Context, a *authorityOf) error { return a.distrust(ctx, node, wait) }
	}
	rotate := func(ctx context.Context, a *authorityOf) error { return a.rotate(ctx, true) }
	for _, tt := range []struct {
		name               string
		do                 func(context.Context, *authorityOf) error
		states             []map[string]string
		patches, said, err string
	}{
		{"distrust", distrust("n2", false), []map[string]string{at()}, "/api/v1/nodes/n2 " + label,
			"node n2 is distrusted: it gets no more certificates\nits access ends in about 3 minutes, after 12 at the latest: kubectl multinet check\n", ""},
		{"a controller is there, wait", distrust("n1", true),
			[]map[string]string{at(), at("rotation", until), at("rotation", until), at("without-access", "n0 n1")}, "/api/v1/nodes/n1 " + label,
			"node n1 is distrusted: it gets no more certificates\n" +
				"warning: root of the node can read the token of the controller controller-x: kubectl drain n1 --ignore-daemonsets --delete-emptydir-data\n" +
				"all certificates are replaced: " + until + "\nnode n1 has no access to OVN\n", ""},
		{"no such node", distrust("gone", true), []map[string]string{at()}, "", "", `nodes "x" not found`},
		{"another OVN", distrust("n2", true), nil, "/api/v1/nodes/n2 " + label, "node n2 is distrusted: it gets no more certificates\n",
			"the chart does not run OVN here, so the access of the node does not end by itself"},
		{"rotate", rotate, []map[string]string{at(), at(), at("rotation", until), at()}, rotation,
			"the rotation begins within a minute\nall certificates are replaced: " + until +
				"\nall certificates are replaced, and the former ones have ended\n", ""},
		{"rotate another OVN", rotate, nil, "", "", "the chart does not run OVN here: replace the certificates where they come from"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := &trustAPI{states: tt.states}
			server := httptest.NewServer(api)
			defer server.Close()
			core, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			err = tt.do(t.Context(), &authorityOf{core, &said})
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if got := strings.Join(api.patches, "\n"); got != tt.patches {
				t.Errorf("it wrote\n%s\nwant\n%s", got, tt.patches)
			}
			if said.String() != tt.said {
				t.Errorf("it said\n%s\nwant\n%s", &said, tt.said)
			}
		})
	}
}
