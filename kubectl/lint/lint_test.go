package lint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/internal/hostile"
)

func check(t *testing.T, paths []string, stdin string) *Report {
	t.Helper()
	files, err := ReadFiles(paths, strings.NewReader(stdin))
	if err != nil {
		t.Fatal(err)
	}
	return Check(t.Context(), Parse(files, "shop"))
}

// TestExamplesAreClean: the manifests of the examples are as we want users to write them.
func TestExamplesAreClean(t *testing.T) {
	r := check(t, []string{"../../examples"}, "")
	if len(r.Findings) > 0 || r.Checked < 30 {
		t.Errorf("%d objects checked, with findings %+v", r.Checked, r.Findings)
	}
}

// TestWordsOfAnAttacker: whatever a NAD and a pod have in them, each finding is one line, and none is lost.
func TestWordsOfAnAttacker(t *testing.T) {
	for seed := range uint64(3000) {
		tenant := hostile.New(seed)
		var text strings.Builder
		for _, name := range []string{"a", "b", "c"} {
			write(&text, "k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name, nil, map[string]any{"config": tenant.NAD()})
		}
		write(&text, "v1", "Pod", "web", map[string]string{"k8s.v1.cni.cncf.io/networks": tenant.Annotation()}, nil)
		r := check(t, []string{Stdin}, text.String())
		documents := r.Checked
		for _, f := range r.Findings {
			if strings.ContainsAny(f.Message, "\n\r\x1b") || f.Message == "" {
				t.Errorf("seed %d: finding %+v", seed, f)
			}
			if f.Object == "" { // YAML has no control characters
				documents++
			}
		}
		if documents != 4 {
			t.Fatalf("seed %d: %d documents, want 4: %+v", seed, documents, r.Findings)
		}
	}
}

func write(to *strings.Builder, version, kind, name string, annotations map[string]string, spec any) {
	text, _ := json.Marshal(map[string]any{
		"apiVersion": version, "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": name, "annotations": annotations},
	})
	fmt.Fprintf(to, "---\n%s\n", text)
}
