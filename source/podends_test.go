package source

import (
	"errors"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// waitFor has the end of pods of these names and UIDs recorded.
func waitFor(when func(*netmodel.Pod, func()) func(), told *names, pods ...string) {
	for _, p := range pods {
		name, uid, _ := strings.Cut(p, " ")
		when(&netmodel.Pod{Namespace: "shop", Name: name, UID: uid}, func() { told.changed("shop", name) })
	}
}

// Who waits for the end of a pod is told once, of that pod alone, and the API is not asked for it.
func TestKubeTellsOfEnds(t *testing.T) {
	c := newCluster(t, "node-1", apiPod("web", "u-1", nil), apiPod("db", "u-2", nil), apiPod("last", "u-3", nil))
	c.run(t, 3, 0)
	told := &names{}
	waitFor(c.WhenGone, told, "web u-1", "web u-1", "db u-2", "web u-0", "late u-4")
	c.WhenGone(&netmodel.Pod{Namespace: "shop", Name: "db", UID: "u-2"}, func() { told.changed("shop", "nobody") })()
	api := c.core.CoreV1().Pods("shop")
	for _, s := range []struct {
		name string
		do   func() error
		want string
	}{
		{"another annotation, and then another pod gone", func() error {
			_, err := api.Update(background, apiPod("web", "u-1", map[string]string{"k8s.v1.cni.cncf.io/networks": "x"}), metav1.UpdateOptions{})
			return errors.Join(err, api.Delete(background, "db", metav1.DeleteOptions{}))
		}, "shop/db"},
		{"another pod of the name", func() error {
			_, err := api.Update(background, apiPod("web", "u-9", nil), metav1.UpdateOptions{})
			return err
		}, "shop/web shop/web"},
		{"that one gone, and one that was made meanwhile", func() error {
			_, err := api.Create(background, apiPod("late", "u-4", nil), metav1.CreateOptions{})
			return errors.Join(err, api.Delete(background, "web", metav1.DeleteOptions{}), api.Delete(background, "late", metav1.DeleteOptions{}))
		}, "shop/late"},
	} {
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
		var all []string
		eventually(t, s.want, func() string {
			if now := told.take(); now != "" {
				all = append(all, now)
			}
			return strings.Join(all, " ")
		})
	}
	waitFor(c.WhenGone, told, "last u-3")
	c.tellEnd(cache.DeletedFinalStateUnknown{Key: "shop/last", Obj: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-3"}}})
	if got := told.take(); got != "shop/last" {
		t.Errorf("of a pod whose deletion the informer has missed: told %q", got)
	}
	for _, asked := range []string{"get ", "list ", "watch "} {
		if strings.Contains(c.requests(), asked) {
			t.Errorf("the API was asked: %s", c.requests())
		}
	}
	if n := len(c.ends.waits); n != 1 {
		t.Errorf("%d wait still, want the one whose pod never was", n)
	}
}

// In a folder a pod ends with its manifest. One that may be in a file that does not parse has not ended.
func TestManifestsTellOfEnds(t *testing.T) {
	f := newFolder(t)
	f.write("web.yaml", podYAML("web", "u-1", "blue"))
	f.write("db.yaml", podYAML("db", "u-2", "blue"))
	f.write("any.yaml", podYAML("any", "", "blue"))
	m := f.manifests(nil)
	told := &names{}
	waitFor(m.WhenGone, told, "web u-1", "db u-2", "any ", "any u-5")
	for _, s := range []struct {
		name string
		do   func()
		want string
	}{
		{"nothing", func() {}, ""},
		{"another annotation", func() { f.write("web.yaml", podYAML("web", "u-1", "green")) }, ""},
		{"a broken file", func() { f.write("web.yaml", "{") }, ""},
		{"another pod of the name", func() { f.write("web.yaml", podYAML("web", "u-9", "blue")) }, "shop/web"},
		{"no manifest", func() { f.remove("db.yaml") }, "shop/db"},
		{"another pod again", func() { f.remove("web.yaml") }, ""},
		{"a manifest without a UID", func() { f.remove("any.yaml") }, "shop/any shop/any"},
	} {
		s.do()
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
		if got := told.take(); got != s.want {
			t.Errorf("%s: told %q, want %q", s.name, got, s.want)
		}
	}
}
