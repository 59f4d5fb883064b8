package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestAPanicOfTheParserIsAnError: the line in the log reads the configuration too, and may stumble as the command did.
// Conformance: F-21
func TestAPanicOfTheParserIsAnError(t *testing.T) {
	for command, run := range commands() {
		t.Run(command, func(t *testing.T) {
			err := run(nil)
			var e *types.Error
			if !errors.As(err, &e) || e.Code != conf.CodeInternal || !strings.HasPrefix(e.Msg, "panic: ") {
				t.Errorf("got %#v, want a CNI error with code %d", err, conf.CodeInternal)
			}
		})
	}
}
