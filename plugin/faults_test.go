package plugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// commands are what skel calls.
func commands() map[string]func(*skel.CmdArgs) error {
	f := (&Plugin{}).Funcs()
	return map[string]func(*skel.CmdArgs) error{"ADD": f.Add, "DEL": f.Del, "CHECK": f.Check, "GC": f.GC, "STATUS": f.Status}
}

// TestEveryCommandIsBehindTheEdge: skel, which calls these, makes 999 of a plain error. All five commands give
// it CNI errors with codes of the table.
// Conformance: F-20
func TestEveryCommandIsBehindTheEdge(t *testing.T) {
	for _, tt := range []struct {
		name, stdin string
		code        uint
	}{
		{"null", "null", conf.CodeDecoding},
		{"nothing", "", conf.CodeDecoding},
		{"a list", "[]", conf.CodeDecoding},
		{"half", `{"name":"cbr0"`, conf.CodeDecoding},
		{"a folder that is none", `{"cniVersion":"1.0.0","name":"cbr0","type":"ovn-multinet","stateDir":"../x"}`, conf.CodeInvalidConfig},
	} {
		for command, run := range commands() {
			t.Run(command+" "+tt.name, func(t *testing.T) {
				err := run(callArgs([]byte(tt.stdin)))
				var e *types.Error
				if !errors.As(err, &e) || e.Code != tt.code || !strings.HasSuffix(e.Details, fmt.Sprintf(" (code %d)", tt.code)) || strings.Contains(e.Msg, "\n") {
					t.Errorf("got %#v, want a CNI error with code %d", err, tt.code)
				}
			})
		}
	}
}

// TestAPanicOfACommandIsAnError: a defect in a command ends neither the process nor the call without a word.
// Conformance: F-21
func TestAPanicOfACommandIsAnError(t *testing.T) {
	noOutput := &Plugin{}
	err := noOutput.Funcs().Add(callArgs(stdin(t.TempDir(), "{}", prevResult)))
	var e *types.Error
	if !errors.As(err, &e) || e.Code != conf.CodeInternal || !strings.HasPrefix(e.Msg, "panic: ") || !strings.Contains(e.Details, "please report it") {
		t.Errorf("got %#v, want a CNI error with code %d", err, conf.CodeInternal)
	}
}
