package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// The second Secret is asked for where the first is not there, and where a Role grants the second alone.
func TestNBSecret(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	forbidden := func(name string) error { return apierrors.NewForbidden(secrets, name, nil) }
	missing := func(name string) error { return apierrors.NewNotFound(secrets, name) }
	away := func(string) error { return apierrors.NewServiceUnavailable("down") }
	for _, tt := range []struct {
		name          string
		first, second func(name string) error // nil: it is there
		want          string                  // the Secret
		err           error
	}{
		{"both", nil, nil, nbSecrets[0], nil},
		{"the first is missing", missing, nil, nbSecrets[1], nil},
		{"the first is forbidden", forbidden, nil, nbSecrets[1], nil},
		{"the first is forbidden, the second is missing", forbidden, missing, "", forbidden(nbSecrets[0])},
		{"the first is missing, the second is forbidden", missing, forbidden, "", missing(nbSecrets[0])},
		{"the API server is away", away, nil, "", away("")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core := fake.NewClientset()
			answers := map[string]func(string) error{nbSecrets[0]: tt.first, nbSecrets[1]: tt.second}
			core.PrependReactor("get", "secrets", func(action ktesting.Action) (bool, runtime.Object, error) {
				name := action.(ktesting.GetAction).GetName()
				if refuse := answers[name]; refuse != nil {
					return true, nil, refuse(name)
				}
				return true, &corev1.Secret{Data: map[string][]byte{"name": []byte(name)}}, nil
			})
			files, err := nbSecret(t.Context(), core)
			if tt.err != nil {
				if err == nil || err.Error() != tt.err.Error() {
					t.Errorf("%v, want %v", err, tt.err)
				}
				return
			}
			if name := string(files["name"]); err != nil || name != tt.want {
				t.Errorf("Secret %q, %v; want %s", name, err, tt.want)
			}
		})
	}
}
