package authority

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestEvents: an authority whose Secret is deleted, and one that cannot be read, are told. The first one is not.
func TestEvents(t *testing.T) {
	client := fake.NewClientset()
	var told []string
	ctx := t.Context()
	s := Signer{Client: client, Namespace: namespace, Signs: true, Life: DefaultLife, Nodes: noNodes,
		Leading: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
		Event: func(warning bool, reason, message string) {
			told = append(told, fmt.Sprint(warning, " ", reason, ": ", message))
		}}
	load := func() {
		t.Helper()
		if _, err := s.load(t.Context(), time.Now(), asker{}); err != nil {
			t.Fatal(err)
		}
	}
	load()
	load()
	if len(told) > 0 {
		t.Errorf("a first authority is told: %q", told)
	}
	secrets := client.CoreV1().Secrets(namespace)
	if err := secrets.Delete(ctx, SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	load()
	broken, err := secrets.Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key := broken.Data["tls.key"]
	for range 2 { // it is told when it breaks, once, and again when it breaks again
		for _, text := range [][]byte{[]byte("no key"), key} {
			broken.Data["tls.key"] = text
			if broken, err = secrets.Update(ctx, broken, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := s.load(ctx, time.Now(), asker{}); (err == nil) != bytes.Equal(text, key) {
					t.Fatalf("with the key %.10q: %v", text, err)
				}
			}
		}
	}
	const notReady = "true AuthorityNotReady: secret " + namespace + "/ovn-multinet-ca: "
	want := []string{"true AuthorityReplaced: the Secret ovn-multinet-ca was deleted: ", notReady, notReady}
	for i := range want {
		if len(told) != len(want) || !strings.HasPrefix(told[i], want[i]) {
			t.Fatalf("Events %q, want %q", told, want)
		}
	}
}
