package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
)

// A pod may use the networks of its own namespace and those of namespace default, unless the operator says otherwise.
func TestBoundaryIsolationIsTheDefault(t *testing.T) {
	const refused = "--global-namespaces is for --namespace-isolation: without that, every namespace is global"
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"no flag", nil, nil, "true [default] <nil>"},
		{"other global namespaces", []string{"--global-namespaces=infra,net"}, nil, "true [infra net] <nil>"},
		{"no global namespace", []string{"--global-namespaces="}, nil, "true [] <nil>"},
		{"off", []string{"--namespace-isolation=false"}, nil, "false [] <nil>"},
		{"off, with global namespaces", []string{"--namespace-isolation=false", "--global-namespaces=infra"}, nil, "false [infra] " + refused},
		{"on, as before it was the default", []string{"--namespace-isolation"}, nil, "true [default] <nil>"},
		{"off by the environment", nil, map[string]string{"NAMESPACE_ISOLATION": "false"}, "false [] <nil>"},
		{"global namespaces by the environment", nil, map[string]string{"GLOBAL_NAMESPACES": "infra"}, "true [infra] <nil>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for key, value := range tt.env {
				t.Setenv("OVN_MULTINET_"+key, value)
			}
			got := "not run"
			cmd := command(func(_ context.Context, c conf.Agent) error {
				got = fmt.Sprint(c.Isolated, c.Global, " ", c.Validate())
				return nil
			})
			cmd.SetArgs(append([]string{"--node-name=n1", "--nb-endpoints=tcp:192.0.2.1:6641"}, tt.args...))
			if exit := program.Main(cmd); exit != 0 || got != tt.want {
				t.Errorf("exit code %d, got %s, want %s", exit, got, tt.want)
			}
		})
	}
}
