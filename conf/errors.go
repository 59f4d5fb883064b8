package conf

import (
	"context"
	"errors"
	"fmt"
)

// The CNI error codes that ovn-multinet answers with. Those below 100 are the CNI specification's
// (section "Error"), those from 101 on are ours.
const (
	CodeEnvironment     uint = 4   // CNI: a CNI_* variable is missing or wrong
	CodeDecoding        uint = 6   // CNI: content that does not parse
	CodeInvalidConfig   uint = 7   // CNI: the network's or the pod's configuration is wrong
	CodeTryAgain        uint = 11  // CNI: a temporary error, the runtime should call again
	CodeNotAvailable    uint = 50  // CNI: the plugin cannot serve ADD
	CodeLimited         uint = 51  // CNI: the plugin cannot serve ADD, running pods may be cut off
	CodeInternal        uint = 999 // CNI: what skel gives to errors without a code
	CodeNetworkNotFound uint = 101
	CodeNotAllowed      uint = 102
	CodeInUse           uint = 103
	CodeNoAddressLeft   uint = 104
	CodeNoDevice        uint = 105
	CodeNoFlows         uint = 106
	CodePodGone         uint = 107
	CodeDelegateFailed  uint = 108
	CodeNotAsMade       uint = 109 // CHECK found a difference
)

// Codes are all codes with their meanings, in ascending order. A test compares them with the documentation.
var Codes = []struct {
	Code    uint
	Meaning string
}{
	{CodeEnvironment, "a CNI_* variable is missing or wrong"},
	{CodeDecoding, "content that does not parse"},
	{CodeInvalidConfig, "the configuration of the network or of the pod is wrong"},
	{CodeTryAgain, "passing trouble, try again"},
	{CodeNotAvailable, "not ready to serve ADD"},
	{CodeLimited, "not ready to serve ADD, running pods may be cut off"},
	{CodeNetworkNotFound, "network not found"},
	{CodeNotAllowed, "network or profile not allowed here"},
	{CodeInUse, "address or MAC in use"},
	{CodeNoAddressLeft, "no address left"},
	{CodeNoDevice, "no device"},
	{CodeNoFlows, "flows not installed"},
	{CodePodGone, "pod gone or replaced"},
	{CodeDelegateFailed, "a delegate failed"},
	{CodeNotAsMade, "an attachment is not as it was made"},
	{CodeInternal, "an error in ovn-multinet itself"},
}

// Error is an error with a CNI code. Layers above wrap it with %w; Describe finds it again.
type Error struct {
	Code    uint
	Details string // the cause and what to do next
	err     error
}

// Errorf returns an Error with a code and with details: a hint on what to do next. format may wrap a cause with %w.
func Errorf(code uint, details, format string, args ...any) *Error {
	return &Error{Code: code, Details: details, err: fmt.Errorf(format, args...)}
}

// Error returns the one-line message.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the wrapped message, and through it the cause.
func (e *Error) Unwrap() error { return e.err }

// Describe returns the code, the one-line message and the details of an error for the CNI result. The message is the
// text of err. The code and the details are those of the first Error in the chain. Message and details have at most
// MaxMessage bytes each.
func Describe(err error) (code uint, msg, details string) {
	msg = Brief(err)
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code, msg, OneLine(e.Details, MaxMessage)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return CodeTryAgain, msg, "the deadline of the call passed first"
	}
	return CodeInternal, msg, ""
}

// HasCode reports whether err carries the code.
func HasCode(err error, code uint) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}
