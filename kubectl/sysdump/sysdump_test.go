package sysdump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// TestHangs: whatever hangs, the archive is there before the time is over, with what could be collected. It lists what
// is missing. The time is the bubble's: it passes when everything waits.
func TestHangs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		hangs   string // paths that contain this
		command bool   // a command does not hear the end of its context
		missing []string
		has     []string
	}{
		{"the logs", "/log", false, []string{"logs/agent-a/agent.log: no answer before the time was over (--timeout)"},
			[]string{"objects/nodes.json", "installation/pods.json", "objects/networks.json"}},
		{"a kind", "/network-attachment-definitions", false,
			[]string{"objects/networks.json: no answer before the time was over (--timeout)"},
			[]string{"logs/agent-a/agent.log", "objects/policies.json"}},
		{"our pods", podsPath, false, []string{"installation/pods.json: no answer before the time was over (--timeout)"},
			[]string{"objects/nodes.json", "objects/networks.json"}},
		{"nodes", "/nodes", false, []string{"objects/nodes.json: no answer before the time was over (--timeout)"},
			[]string{"logs/agent-a/agent.log"}},
		{"a command that does not hear its context", "nothing", true,
			[]string{"commands/never.txt: no answer before the time was over (--timeout)"}, []string{"logs/agent-a/agent.log"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.add(podsPath, agentPod)
				w.logs["agent-a/agent"] = "a line\n"
				end := make(chan struct{})
				if tt.command {
					w.outputs = []Output{{"commands/never.txt", func(context.Context, io.Writer) error { <-end; return nil }}}
				}
				w.answer = func(_ http.ResponseWriter, r *http.Request) bool {
					if strings.Contains(r.URL.Path, tt.hangs) {
						hang(r)
					}
					return false
				}
				began := time.Now()
				result, files := w.write()
				if took := time.Since(began); took > w.timeout {
					t.Errorf("it took %s of %s", took, w.timeout)
				}
				close(end)
				got := strings.Split(strings.TrimSpace(files[MissingFile]), "\n")
				if !slices.Equal(got, tt.missing) || result.Missing != len(tt.missing) {
					t.Errorf("%d missing:\n%s\nwant\n%s", result.Missing, strings.Join(got, "\n"), strings.Join(tt.missing, "\n"))
				}
				for _, name := range tt.has {
					if files[name] == "" {
						t.Errorf("the archive does not have %s", name)
					}
				}
				w.alone("dump.tar.gz")
			})
		})
	}
}

// TestAllHangs: an API server that never answers, and everything is listed.
func TestAllHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.outputs = []Output{{"commands/x.txt", func(ctx context.Context, _ io.Writer) error {
			<-ctx.Done()
			return ctx.Err()
		}}}
		w.answer = func(_ http.ResponseWriter, r *http.Request) bool { hang(r); return true }
		for i := range 6 {
			w.outputs = append(w.outputs, w.outputs[0])
			w.outputs[i].Name = fmt.Sprintf("commands/%d.txt", i)
		}
		began := time.Now()
		result, files := w.write()
		if took := time.Since(began); took > w.timeout || len(files) != 3 || result.Missing != 19+len(w.outputs) {
			t.Errorf("it took %s, and %d are missing:\n%s\nfiles %d", took, result.Missing, files[MissingFile], len(files))
		}
		if strings.Contains(files[MissingFile], "before its turn") {
			t.Errorf("one waits for another one:\n%s", files[MissingFile])
		}
	})
}

// TestHearsTheEnd: a command that hears the end of its time hands over what it has until then.
func TestHearsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.outputs = []Output{{"commands/x.txt", func(ctx context.Context, out io.Writer) error {
			_, _ = io.WriteString(out, "some")
			<-ctx.Done()
			_, _ = io.WriteString(out, "thing")
			return ctx.Err()
		}}}
		_, files := w.write()
		if files["commands/x.txt"] != "something" {
			t.Errorf("the archive has %q", files["commands/x.txt"])
		}
		has(t, MissingFile, files[MissingFile], "commands/x.txt: no answer before the time was over (--timeout)")
	})
}

// TestNodeHangs: a node that does not answer is asked once. Nodes that are known to be silent come last, so the logs of
// all others are there, however many are silent.
func TestNodeHangs(t *testing.T) {
	const silent, answer = 8 * parallel, 5
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range silent + answer {
			for _, pod := range []string{"x", "y"} {
				w.add(podsPath, fmt.Sprintf(`{"metadata":{"name":"%s-%03d","labels":{"app":"ovn-multinet-agent"}},
					"spec":{"nodeName":"n%03d"},"status":{"containerStatuses":[{"name":"agent","containerID":"1"}]}}`, pod, i, i))
				w.logs[fmt.Sprintf("%s-%03d/agent", pod, i)] = "a line\n"
			}
			ready := "True"
			if i < silent { // by name they come first
				ready = "Unknown"
			}
			w.add("/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":"n%03d"},
				"status":{"conditions":[{"type":"Ready","status":%q}]}}`, i, ready))
		}
		w.answer = func(_ http.ResponseWriter, r *http.Request) bool {
			var i int
			end := r.URL.Path[max(0, len(r.URL.Path)-len("000/log")):]
			if _, err := fmt.Sscanf(end, "%03d/log", &i); err == nil && i < silent {
				hang(r)
			}
			return false
		}
		_, files := w.write()
		for i := range silent + answer {
			for _, pod := range []string{"x", "y"} {
				if name := fmt.Sprintf("logs/%s-%03d/agent.log", pod, i); (files[name] != "") != (i >= silent) {
					t.Errorf("%s is %q", name, files[name])
				}
			}
		}
		has(t, MissingFile, files[MissingFile], "logs/x-000/agent.log: no answer before the time was over",
			"logs/y-000/agent.log: node n000 did not answer for another log",
			fmt.Sprintf("logs/x-%03d/agent.log: the time was over before its turn", silent-1))
	})
}

// TestForbidden: a tenant gets what it may read. The rest is listed with the right that is missing.
func TestForbidden(t *testing.T) {
	w := newWorld(t)
	w.scope = "shop"
	w.add("/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions",
		`{"metadata":{"name":"blue","namespace":"shop"},"spec":{"config":"{}"}}`)
	w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		mine := strings.Contains(r.URL.Path, "/namespaces/shop/")
		if !mine {
			refuse(rw, r)
		}
		return !mine
	}
	result, files := w.write()
	has(t, "objects/networks.json", files["objects/networks.json"], `"name":"blue"`)
	lines := strings.Split(strings.TrimSpace(files[MissingFile]), "\n")
	if len(lines) != result.Missing || len(lines) != 14 {
		t.Errorf("%d missing, in %d lines", result.Missing, len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(line, "is forbidden: no right") {
			t.Errorf("it does not say why: %s", line)
		}
	}
	for _, name := range []string{"objects/nodes.json", "objects/routers.json", "installation/secrets.json",
		"installation/pods.json"} {
		has(t, MissingFile, files[MissingFile], name+": ")
	}
	has(t, "about.txt", files["about.txt"], "events of: namespace shop")
}

// TestKindIsNotServed: IPAMClaims come with another program, so a cluster without them lacks nothing. Without the kinds
// of the chart it does.
func TestKindIsNotServed(t *testing.T) {
	w := newWorld(t)
	w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		gone := strings.HasSuffix(r.URL.Path, "/ipamclaims") || strings.HasSuffix(r.URL.Path, "/multi-networkpolicies") || strings.HasSuffix(r.URL.Path, "/routers")
		if gone {
			http.NotFound(rw, r)
		}
		return gone
	}
	_, files := w.write()
	has(t, "about.txt", files["about.txt"], "not in this cluster: objects/ipamclaims.json: this cluster has none: "+
		"the API server does not serve ipamclaims")
	has(t, "about.txt", files["about.txt"], "the API server does not serve multi-networkpolicies")
	if text := files[MissingFile]; !strings.HasPrefix(text, "objects/routers.json: ") || strings.Count(text, "\n") != 1 {
		t.Errorf("missing:\n%s", text)
	}
}

// TestProxyRefuses: the answer of a proxy is no object of the API, and is named by its code.
func TestProxyRefuses(t *testing.T) {
	w := newWorld(t)
	w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/version" {
			rw.Header().Set("Content-Type", "text/html")
			rw.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	_, files := w.write()
	const want = "objects/version.json: the API server, or a proxy before it, answers with code 403\n"
	if files[MissingFile] != want {
		t.Errorf("missing:\n%s\nwant\n%s", files[MissingFile], want)
	}
}

// TestExists: a file that is there stays as it is, also if it comes while the archive is being written.
func TestExists(t *testing.T) {
	for name, late := range map[string]bool{"before": false, "meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			put := func() {
				if err := os.WriteFile(w.file, []byte("mine"), 0o644); err != nil {
					t.Error(err)
				}
			}
			if late {
				w.outputs = []Output{{"commands/x.txt", func(context.Context, io.Writer) error { put(); return nil }}}
			} else {
				put()
			}
			_, err := write(t.Context(), w.config(), w.most)
			if want := w.file + " exists: delete it, or name another file with --output"; err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
			if text, err := os.ReadFile(w.file); err != nil || string(text) != "mine" {
				t.Errorf("the file has %q, %v", text, err)
			}
			w.alone("dump.tar.gz")
			if asked := len(w.requests) > 0; asked != late {
				t.Errorf("the API server was asked: %t", asked)
			}
		})
	}
}

// TestInterrupted: Ctrl-C ends the command with no archive and no other file.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	ctx, interrupt := context.WithCancel(t.Context())
	w.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/network-attachment-definitions") {
			interrupt()
			hang(r)
		}
		return false
	}
	result, err := write(ctx, w.config(), w.most)
	if err == nil || result != nil || err.Error() != "interrupted: there is no archive" {
		t.Errorf("%v, %v", result, err)
	}
	w.alone()
}

// TestMode: the archive is for its user alone.
func TestMode(t *testing.T) {
	w := newWorld(t)
	result, _ := w.write()
	info, err := os.Stat(w.file)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != result.Size {
		t.Errorf("%v, %v, size %d", info, err, result.Size)
	}
	w.file = filepath.Join(t.TempDir(), "none", "dump.tar.gz")
	if _, err := write(t.Context(), w.config(), w.most); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
}

// TestOutputs: what a command writes is kept, also beside its error. What a cluster cannot have is not missing.
func TestOutputs(t *testing.T) {
	w := newWorld(t)
	say := func(text string, err error) func(context.Context, io.Writer) error {
		return func(_ context.Context, out io.Writer) error {
			_, failed := io.WriteString(out, text)
			return errors.Join(failed, err)
		}
	}
	w.outputs = []Output{{"commands/a.txt", say("whole", nil)}, {"commands/b.txt", say("some", errors.New("two\nlines"))},
		{"ovn/c.txt", say("", fmt.Errorf("%w: no OVN", ErrNone))}}
	result, files := w.write()
	if files["commands/a.txt"] != "whole" || files["commands/b.txt"] != "some" || files["ovn/c.txt"] != "" {
		t.Errorf("%q", files)
	}
	if result.Missing != 1 || files[MissingFile] != "commands/b.txt: two lines\n" {
		t.Errorf("missing:\n%s", files[MissingFile])
	}
	has(t, "about.txt", files["about.txt"], "not in this cluster: ovn/c.txt: this cluster has none: no OVN")
}

// TestBounds: a file and the archive have a largest size, a kind has a largest number of objects. Each is listed.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.add("/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i))
	}
	w.most.objects, w.most.file, w.most.total = 3, 2000, 4000
	w.outputs = []Output{{"commands/long.txt", func(_ context.Context, out io.Writer) error {
		_, err := io.WriteString(out, strings.Repeat("x", 2001))
		return err
	}}, {"commands/second.txt", func(_ context.Context, out io.Writer) error {
		_, err := io.WriteString(out, strings.Repeat("y", 2000))
		return err
	}}}
	_, files := w.write()
	if got := strings.Count(files["objects/nodes.json"], `"name"`); got != 3 {
		t.Errorf("%d nodes", got)
	}
	missing := files[MissingFile]
	has(t, MissingFile, missing, "objects/nodes.json: the rest is missing: the file has 3 objects, which is the most",
		"commands/long.txt: the rest is missing: the file has the largest size",
		": the archive has the largest size that an archive may have")
	total := 0
	for name, text := range files {
		if total += len(text); len(text) > 2000 && strings.HasPrefix(name, "commands") {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if own := len(files["about.txt"]) + len(missing) + len(files["omitted.txt"]); total-own > 4000 {
		t.Errorf("%d bytes in all", total-own)
	}
}

// TestPages: all pages of a list are read, and a page that ends early loses no object before its end.
func TestPages(t *testing.T) {
	w := newWorld(t)
	w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/nodes" {
			return false
		}
		if r.URL.Query().Get("limit") != "500" {
			t.Errorf("no limit: %s", r.URL)
		}
		text := `{"items":[{"metadata":{"name":"one"}},{"metadata":{"name":7}}],"metadata":{"continue":"next"}}`
		if r.URL.Query().Get("continue") == "next" {
			text = `{"items":[{"metadata":{"name":"two"}},{"metadata":{"na`
		}
		_, _ = io.WriteString(rw, text)
		return true
	}
	_, files := w.write()
	has(t, "objects/nodes.json", files["objects/nodes.json"], `"name":"one"`, `"name":"two"`, "\n]\n")
	has(t, MissingFile, files[MissingFile], "objects/nodes.json: the rest is missing: unexpected EOF "+
		"1 objects do not have the form of their kind")
}

// TestAsksOnlyFor: the requests are reads, of the lists in the docs alone.
func TestAsksOnlyFor(t *testing.T) {
	w := newWorld(t)
	w.add(podsPath, agentPod)
	w.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		return false
	}
	w.write()
	paths := sets.New[string]()
	for _, request := range w.requests {
		paths.Insert(strings.Split(request, "?")[0])
	}
	const in = "/namespaces/ovn-multinet/"
	want := sets.New[string]("http://api/version", "http://api/api/v1/pods", "http://api/api/v1/nodes",
		"http://api/api/v1/events", "http://api"+podsPath+"/agent-a/log")
	for _, of := range []string{"/api/v1|pods configmaps secrets events", "/apis/apps/v1|daemonsets deployments",
		"/apis/batch/v1|jobs", "/apis/coordination.k8s.io/v1|leases"} {
		group, kinds, _ := strings.Cut(of, "|")
		for _, kind := range strings.Fields(kinds) {
			want.Insert("http://api" + group + in + kind)
		}
	}
	for _, kind := range []string{"v1/network-attachment-definitions", "v1beta1/multi-networkpolicies", "v1alpha1/ipamclaims"} {
		want.Insert("http://api/apis/k8s.cni.cncf.io/" + kind)
	}
	for _, kind := range []string{"physicalnetworks", "routers", "addresspools", "securityprofiles"} {
		want.Insert("http://api/apis/ovn-multinet.io/v1alpha1/" + kind)
	}
	if !paths.Equal(want) {
		t.Errorf("more %q, fewer %q", sets.List(paths.Difference(want)), sets.List(want.Difference(paths)))
	}
	for _, request := range w.requests {
		if strings.HasPrefix(request, "http://api/api/v1/events?") &&
			!strings.Contains(request, "fieldSelector=source%3Dovn-multinet") {
			t.Errorf("events of other programs: %s", request)
		}
	}
}
