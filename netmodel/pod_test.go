package netmodel

import "testing"

func TestIs(t *testing.T) {
	tests := []struct {
		name string
		pod  Pod
		uid  string
		want bool
	}{
		{"same", Pod{UID: "u1"}, "u1", true},
		{"another", Pod{UID: "u1"}, "u2", false},
		{"a runtime that does not tell", Pod{UID: "u1"}, "", true},
		{"a manifest without", Pod{}, "u1", true},
		{"a static pod", Pod{UID: "u1", Mirror: "hash"}, "hash", true},
		{"a static pod by the API's UID", Pod{UID: "u1", Mirror: "hash"}, "u1", true},
		{"a static pod, and a runtime that does not tell", Pod{UID: "u1", Mirror: "hash"}, "", true},
		{"another static pod", Pod{UID: "u1", Mirror: "hash"}, "other", false},
	}
	for _, tt := range tests {
		if got := tt.pod.Is(tt.uid); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
