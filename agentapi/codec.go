package agentapi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Request is one message to the agent: a line of JSON.
type Request struct {
	Version int    `json:"version"`
	Op      string `json:"op"`
	// Timeout is how long the plugin will wait for the answer, in milliseconds. The agent ends a little earlier, so
	// that its error says what was waited for.
	Timeout int64           `json:"timeout,omitempty"`
	Body    json.RawMessage `json:"body"`
}

// Response is the agent's answer: a line of JSON, with a body or an error.
type Response struct {
	Version int             `json:"version"`
	Error   *Error          `json:"error,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
	// Garbage are some of the stale sandboxes that have something only the plugin can delete.
	Garbage []Garbage `json:"dead,omitempty"`
}

// Error is an error with its CNI code, on its way to the plugin.
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
	// Clean: the request left nothing behind, there is nothing to release.
	Clean bool `json:"clean,omitempty"`
}

// Reader reads messages.
type Reader struct{ lines *bufio.Reader }

// NewReader reads messages from a connection.
func NewReader(r io.Reader) *Reader { return &Reader{lines: bufio.NewReader(r)} }

// Read reads one message.
func (r *Reader) Read(into any) error {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxMessage {
			return errLongMessage(0)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if len(line) > 0 && errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	return nil
}

// Write writes one message with one write. A message over the bound is an ErrTooLarge, and nothing is written.
func Write(w io.Writer, message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(line) >= maxMessage {
		return errLongMessage(len(line) + 1)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// CheckVersion refuses a peer whose version we do not understand.
func CheckVersion(version int) error {
	if version == Version || version == Version-1 && version > 0 {
		return nil
	}
	return conf.Errorf(conf.CodeTryAgain, "plugin and agent are more than one version apart: finish the upgrade of this node",
		"protocol version %d is not understood, only %d", version, Version)
}

// AnswerVersion is the version of the answer to a request: that of the request if we understand it, because the peer
// may be older, otherwise ours, from which the peer learns that it has to use an older version.
func AnswerVersion(request int) int {
	if CheckVersion(request) == nil {
		return request
	}
	return Version
}

// NewError turns an error into its message.
func NewError(err error) *Error {
	code, msg, details := conf.Describe(err)
	return &Error{Code: code, Msg: msg, Details: details}
}

// ErrClean is in an error of the agent that says that nothing was left behind.
var ErrClean = errors.New("nothing was made")

// clean marks an error with ErrClean and leaves its text alone.
type clean struct{ error }

func (c clean) Unwrap() []error { return []error{c.error, ErrClean} }

// Err turns the message back into an error; nil into nil. repeated says that the request was sent before, to an
// agent that went away over it: then this answer says nothing of what that one left.
func (e *Error) Err(repeated bool) error {
	if e == nil {
		return nil
	}
	err := conf.Errorf(e.Code, e.Details, "%s", e.Msg)
	if e.Clean && !repeated {
		return clean{err}
	}
	return err
}
