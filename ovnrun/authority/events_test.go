package authority

import (
	"context"
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := Signer{Client: client, Namespace: namespace, Signs: true, Life: DefaultLife, Nodes: noNodes,
		Leading: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
		Event: func(warning bool, reason, message string) {
			told = append(told, fmt.Sprint(warning, " ", reason, ": ", message))
			if reason == "AuthorityNotReady" {
				cancel()
			}
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
	broken.Data["tls.key"] = []byte("no key")
	if _, err := secrets.Update(ctx, broken, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.keepAuthority(ctx)
	want := []string{"true AuthorityReplaced: the Secret ovn-multinet-ca was deleted: ", "true AuthorityNotReady: secret " + namespace + "/ovn-multinet-ca: "}
	for i := range want {
		if len(told) != len(want) || !strings.HasPrefix(told[i], want[i]) {
			t.Fatalf("Events %q, want %q", told, want)
		}
	}
}
