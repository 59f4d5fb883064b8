package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// folder makes a folder of configurations; one without a text is a folder in it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		var err error
		if text == "" {
			err = os.Mkdir(filepath.Join(dir, name), 0o700)
		} else {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A NAD without spec.config is the node's file of its name (multi-net-spec 1.3, section 3.4.1).
// Conformance: N-3 N-8 N-9 N-10 N-11 C-7 C-9 F-15
func TestConfigurationsOfTheNode(t *testing.T) {
	single := func(kind string) string { return `{"name":"ext","type":"` + kind + `"}` }
	list := func(kind string) string { return `{"name":"ext","plugins":[{"type":"` + kind + `"}]}` }
	const absent = `no configuration in DIR has the name "ext"`
	tests := []struct {
		name  string
		own   string // the NAD's spec.config
		files map[string]string
		want  string
		code  uint // of the error, whose text is want
	}{
		{"its own comes first", single("own"), map[string]string{"a.conflist": list("a")}, single("own"), 0},
		{"a list", "", map[string]string{"a.conflist": list("a")}, list("a"), 0},
		{"a single configuration", "", map[string]string{"a.conf": single("a")}, single("a"), 0},
		{"of the other extension", "", map[string]string{"a.json": single("a")}, single("a"), 0},
		{"lists come first", "", map[string]string{"a.conf": single("a"), "b.json": single("b"), "z.conflist": list("z")}, list("z"), 0},
		{"lists by their files' names", "", map[string]string{"20-a.conflist": list("a"), "10-z.conflist": list("z")}, list("z"), 0},
		{"single ones by their files' names", "", map[string]string{"b.conf": single("b"), "a.json": single("a")}, single("a"), 0},
		{"the name inside counts", "", map[string]string{"ext.conf": `{"name":"other","type":"a"}`, "other.conf": single("b")}, single("b"), 0},
		{"broken neighbours", "", map[string]string{"a.conflist": `{"name":"ext"`, "b.conflist": `[]`, "c.conflist": "", "d.conflist": `{"name":1}`, "e.conflist": list("e")}, list("e"), 0},
		{"what only looks like one", "", map[string]string{"a.conf.bak": single("a"), "conf": single("b"), "a.yaml": single("c")}, absent, conf.CodeNetworkNotFound},
		{"none of the name", "", map[string]string{"a.conf": `{"name":"EXT","type":"a"}`, "b.conf": `{"type":"b"}`}, absent, conf.CodeNetworkNotFound},
		{"an empty folder", "", nil, absent, conf.CodeNetworkNotFound},
		{"OVN", "", map[string]string{"a.conf": single("ovn-multinet")},
			"network shop/ext: DIR/a.conf: it is of type ovn-multinet, which belongs in spec.config", conf.CodeInvalidConfig},
		{"ovn-kubernetes", "", map[string]string{"a.conf": single("ovn-k8s-cni-overlay")},
			"network shop/ext: DIR/a.conf: it is of type ovn-k8s-cni-overlay, which belongs in spec.config", conf.CodeInvalidConfig},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := &pods{nads: map[string]testNAD{"ext": {Config: tt.own, HasFinalizer: true}}}
			a := &Agent{node: &node{conf: conf.Agent{NADConfDir: folder(t, tt.files)}, source: src}}
			def, err := a.getNAD(t.Context(), "shop", "ext")
			if tt.code != 0 {
				wantCoded(t, err, tt.code, replaceDir(tt.want, a.conf.NADConfDir))
				return
			}
			if err != nil || def.Config.Text() != tt.want || def.ID() != "shop/ext" || !def.HasFinalizer {
				t.Errorf("got %+v, %v; want %s", def, err, tt.want)
			}
		})
	}
}

// Conformance: N-11
func TestNADsWithoutConfiguration(t *testing.T) {
	src := &pods{nads: map[string]testNAD{"ext": {}}}
	a := &Agent{node: &node{source: src}}
	_, err := a.getNAD(t.Context(), "shop", "ext")
	wantCoded(t, err, conf.CodeInvalidConfig, "NetworkAttachmentDefinition shop/ext has no spec.config")

	// A file does not make a network of what is not there.
	a.conf.NADConfDir = folder(t, map[string]string{"a.conf": `{"name":"gone","type":"a"}`})
	if _, err := a.getNAD(t.Context(), "shop", "gone"); !errors.Is(err, netmodel.ErrNotFound) || conf.HasCode(err, conf.CodeNetworkNotFound) {
		t.Errorf("a NAD that is not there: %v", err)
	}

	a.conf.NADConfDir = filepath.Join(a.conf.NADConfDir, "missing")
	if _, err := a.getNAD(t.Context(), "shop", "ext"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
