package agentapi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Request is one message to the agent: a line of JSON.
type Request struct {
	Version int    `json:"version"`
	Op      string `json:"op"`
	// Timeout is how long the plugin will wait for the answer, in milliseconds. The agent ends the request a little
	// earlier, so that its error names the step that did not finish.
	Timeout int64           `json:"timeout,omitempty"`
	Body    json.RawMessage `json:"body"`
	// Sockets came with the message, beside its text: see BindRequest.
	Sockets []*os.File `json:"-"`
}

// Response is the agent's answer: a line of JSON, with a body or an error.
type Response struct {
	Version int             `json:"version"`
	Error   *Error          `json:"error,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
	// Garbage are some of the stale sandboxes with something that only the plugin can delete.
	Garbage []Garbage `json:"dead,omitempty"`
}

// Error is an error with its CNI code, in a message to the plugin.
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
	// Clean: the request created nothing, so there is nothing to release.
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

// Write writes one message with one write. A message that is too large is an ErrTooLarge; then nothing is written.
func Write(w io.Writer, message any) error {
	line, err := encode(message)
	if err == nil {
		_, err = w.Write(line)
	}
	return err
}

// encode returns the line of a message.
func encode(message any) ([]byte, error) {
	line, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if len(line) >= maxMessage {
		return nil, errLongMessage(len(line) + 1)
	}
	return append(line, '\n'), nil
}

// CheckVersion refuses a peer whose version we do not understand.
func CheckVersion(version int) error {
	if version == Version || version == Version-1 && version > 0 {
		return nil
	}
	return conf.Errorf(conf.CodeTryAgain,
		"plugin and agent are more than one version apart: finish the upgrade of this node",
		"protocol version %d is not understood, only %d", version, Version)
}

// AnswerVersion is the version of the answer to a request. It is the version of the request if we understand that
// version, because the peer may be older. Otherwise it is our own version: it tells the peer to use an older version.
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

// ErrClean marks the error of a request that created nothing.
var ErrClean = errors.New("nothing was made")

// clean marks an error with ErrClean and does not change its text.
type clean struct{ error }

func (c clean) Unwrap() []error { return []error{c.error, ErrClean} }

// Err turns the message back into an error; nil stays nil. repeated says that an earlier attempt sent the request to
// an agent that ended before its answer. Err then ignores Clean: the answer does not say what the earlier attempt
// created.
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
