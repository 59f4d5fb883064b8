package source

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// TestKubeSaysWhichPodsHaveAGuest: the source says of each target of a migration once that the guest runs in it: of those at
// its start, and of those that get the annotation later. A pod without the label is no target.
func TestKubeSaysWhichPodsHaveAGuest(t *testing.T) {
	made := func(name string, annotation string) *corev1.Pod {
		p := apiPod(name, "u-"+name, map[string]string{conf.NetworksAnnotation: "blue"})
		p.Labels = map[string]string{conf.MigrationLabel: "job"}
		if annotation != "" {
			p.Annotations[conf.MigratedAnnotation] = annotation
		}
		return p
	}
	plain := made("plain", "2026-01-02T03:04:05Z")
	plain.Labels = nil
	c := newCluster(t, "node-1", plain, made("first", "2026-01-02T03:04:05Z"), made("later", ""), made("never", ""))
	c.run(t, 4, 0)
	eventually(t, "shop/first", c.migrated.take)
	for _, p := range []*corev1.Pod{made("later", "2026-01-02T03:04:05Z"), made("first", "2026-01-02T03:04:06Z"), made("never", "")} {
		if _, err := c.core.CoreV1().Pods("shop").Update(background, p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "shop/later", c.migrated.take)
	if _, err := c.core.CoreV1().Pods("shop").Create(background, made("last", "2026-01-02T03:04:05Z"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shop/last", c.migrated.take)
}

// TestManifestsSayWhichPodsHaveAGuest: so does a folder.
func TestManifestsSayWhichPodsHaveAGuest(t *testing.T) {
	f, migrated := newFolder(t), &names{}
	m, err := NewManifests(f.dir, Changes{Migrated: func(p *netmodel.Pod) { migrated.changed(p.Namespace, p.Name+" on "+p.Node) }},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	target := strings.Replace(podYAML("vm", "u1", "blue"), "metadata:\n", "metadata:\n  labels: {"+conf.MigrationLabel+": job}\n", 1)
	for _, step := range []struct{ text, want string }{
		{target, ""},
		{strings.Replace(target, "annotations:\n", "annotations:\n    "+conf.MigratedAnnotation+": now\n", 1), "shop/vm on node-1"},
		{strings.Replace(target, "annotations:\n", "annotations:\n    "+conf.MigratedAnnotation+": later\n", 1), ""},
	} {
		f.write("pod.yaml", step.text)
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
		if got := migrated.take(); got != step.want {
			t.Errorf("told of %q, want %q", got, step.want)
		}
	}
}
