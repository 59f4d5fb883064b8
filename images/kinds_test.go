package images

import (
	"errors"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// TestKindsOfTheChart: the chart has the definitions of the operator's objects as the controller reads them. They are
// among the templates, because Helm never updates what is in the folder crds.
func TestKindsOfTheChart(t *testing.T) {
	const file = "chart/templates/05-kinds.yaml"
	docs := []string{"# The kinds of the operator's objects, made by `make install.yaml`. Helm keeps them when the chart is uninstalled,\n" +
		"# because the API server deletes the objects of a kind with the kind.\n"}
	for _, d := range entry.Definitions() {
		text, err := yaml.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		label := "  labels:\n    ovn-multinet.io/keep: \"true\"\n"
		if strings.Count(string(text), label) != 1 {
			t.Fatalf("a definition does not have one label: %.200s", text)
		}
		docs = append(docs, strings.Replace(string(text), label,
			`  labels: {{ include "labels" (list $ "kinds" (dict "ovn-multinet.io/keep" "true")) }}`+"\n", 1))
	}
	text := docs[0] + strings.Join(docs[1:], "---\n")
	const page, begin, end = "../docs/objects.md", "<!-- kinds: `make install.yaml` -->\n", "<!-- end of kinds -->\n"
	was, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(was), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s does not have the marks of the tables", page)
	}
	tables := before + begin + entry.Table() + end + after
	if *update {
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.WriteFile(page, []byte(tables), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != text {
		t.Errorf("%s is not what the controller reads: run `make install.yaml` (%v)", file, err)
	}
	if tables != string(was) {
		t.Errorf("the tables of %s are not those of the kinds: run `make install.yaml`", page)
	}
}
