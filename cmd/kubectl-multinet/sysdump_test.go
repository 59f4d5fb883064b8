package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
	"github.com/ovn-multinet/ovn-multinet/kubectl/sysdump"
)

// twoClusters writes a kubeconfig with two contexts. In tenant, the user may list networks and pods in the namespace
// shop, and nothing else. The API server of hung answers no request.
func twoClusters(t *testing.T, kubeconfig string) error {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces/shop/network-attachment-definitions"):
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"blue","namespace":"shop"},
				"spec":{"config":"{\"type\":\"vpn\",\"password\":\"KEY-MARKER-1\"}"}},
				{"metadata":{"name":"red","namespace":"shop"},"spec":{"config":"{\"type\":\"ovn-multinet\"}"}}]}`)
			return
		case strings.HasSuffix(r.URL.Path, "/namespaces/shop/pods"):
			fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
			return
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
			"reason": "Forbidden", "message": "user tenant may not " + r.Method + " " + r.URL.Path})
	}))
	t.Cleanup(server.Close)
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of a client only after its request
		<-r.Context().Done()
	}))
	t.Cleanup(hung.Close)
	return os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"current-context":"tenant",
		"clusters":[{"name":"tenant","cluster":{"server":%q}},{"name":"hung","cluster":{"server":%q}}],
		"contexts":[{"name":"tenant","context":{"cluster":"tenant"}},{"name":"hung","context":{"cluster":"hung"}}]}`,
		server.URL, hung.URL), 0o600)
}

// TestSysdumpReport: the last line and the exit code say whether the archive is complete.
func TestSysdumpReport(t *testing.T) {
	for _, tt := range []struct {
		missing int
		want    string
		code    int
	}{
		{0, "x.tar.gz: 2 KiB, nothing is missing\n", check.ExitOK},
		{3, "x.tar.gz: 2 KiB, missing: 3, see missing.txt in the archive\n", check.ExitUnread},
	} {
		var out bytes.Buffer
		err := (&sysdumpOptions{file: "x.tar.gz"}).report(&out, &sysdump.Result{Size: 1025, Missing: tt.missing})
		code := check.ExitOK
		if exit, is := errors.AsType[*program.Exit](err); is {
			code = exit.Code
		}
		if out.String() != tt.want || code != tt.code {
			t.Errorf("%q with code %d, want %q with %d", &out, code, tt.want, tt.code)
		}
	}
}

// TestUnreadChecks: a check that could not be made is missing. An error that a check has found is not.
func TestUnreadChecks(t *testing.T) {
	found := []check.Finding{{What: "agents", Level: check.Error}, {What: "leader", Unread: true},
		{What: "raft", Unread: true}}
	if err := unreadChecks(found[:1]); err != nil {
		t.Error(err)
	}
	if err := unreadChecks(found); err == nil || err.Error() != "these checks cannot be made: leader, raft" {
		t.Error(err)
	}
}
