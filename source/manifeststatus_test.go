package source

import (
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// A status is deleted only if it is the one that was written.
func TestDeleteStatus(t *testing.T) {
	f := newFolder(t)
	m := f.manifests(nil)
	pod := &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}
	for _, status := range []string{`[{"name":"cbr0","default":true}]`, `[]`} {
		for _, step := range []func() error{
			func() error { return m.DeleteStatus(background, pod, []byte(status)) }, // there is none
			func() error { return m.SetStatus(background, pod, []byte(status)) },
			func() error { return m.DeleteStatus(background, pod, []byte(`[{"name":"other"}]`)) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.list(); got != "u1.status.json" {
			t.Errorf("another status was deleted: files %q", got)
		}
		if err := m.DeleteStatus(background, pod, []byte(status)); err != nil || f.list() != "" {
			t.Errorf("files %q, %v", f.list(), err)
		}
	}
	f.write("u1.status.json", "{")
	if err := m.DeleteStatus(background, pod, []byte("[]")); err == nil || !strings.HasPrefix(err.Error(), "network-status: ") {
		t.Errorf("%v", err)
	}
}
