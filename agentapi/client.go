package agentapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// redialPause is the pause between two attempts to reach an agent that is being restarted.
const redialPause = 50 * time.Millisecond

// Client sends the plugin's requests to the agent.
type Client struct {
	Socket string
	// Patience bounds the wait for an agent that does not run.
	Patience time.Duration

	// Sockets are the file descriptors that go with each BindRequest. They stay open.
	Sockets []int

	// Garbage are the stale sandboxes of the last answer.
	Garbage []Garbage

	conn    net.Conn
	reader  *Reader
	version int // the version that the agent understands; 0: not known, so use ours
}

// Close ends the connection. The agent then cancels the request of this connection.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// Call sends a request and reads the answer into out, which may be nil. If the agent ends during the call, Call sends
// the request again when the agent runs again: every operation may be repeated.
func (c *Client) Call(ctx context.Context, op string, body, out any) error {
	repeated := false
	for deadline := time.Now().Add(c.Patience); ; {
		response, sent, err := c.try(ctx, op, body)
		if err == nil {
			if err := CheckVersion(response.Version); err != nil {
				return err
			}
			if spoken := cmp.Or(c.version, Version); response.Error != nil && response.Version < spoken {
				c.version = response.Version // an older agent refused our version
				continue
			}
			c.Garbage = response.Garbage
			if err := response.Error.Err(repeated); err != nil {
				return err
			}
			return decode(response.Body, out)
		}
		repeated = repeated || sent
		c.Close()
		if errors.Is(err, ErrTooLarge) {
			return tooLong(op, err, repeated)
		}
		if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
			missing := conf.Errorf(conf.CodeTryAgain, "is the ovn-multinet agent running on this node?",
				"agent at %s: %w", c.Socket, err)
			if repeated {
				return missing
			}
			return clean{missing} // no agent received the request
		}
		select {
		case <-ctx.Done():
		case <-time.After(redialPause):
		}
	}
}

// tooLong is the error of a request or an answer that is longer than a message may be. Another attempt would not make
// it shorter.
func tooLong(op string, err error, sent bool) error {
	refused := conf.Errorf(conf.CodeInvalidConfig,
		"name fewer networks in the pod's annotation "+conf.NetworksAnnotation+", or shorten their spec.config",
		"%s between plugin and agent: %w", op, err)
	if sent {
		return refused
	}
	return clean{refused}
}

// try makes one attempt. sent reports whether the request may have reached an agent.
func (c *Client) try(ctx context.Context, op string, body any) (response *Response, sent bool, err error) {
	if c.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
		if err != nil {
			return nil, false, err
		}
		c.conn, c.reader = conn, NewReader(conn)
	}
	deadline, _ := ctx.Deadline()
	var timeout int64
	if !deadline.IsZero() {
		timeout = max(1, time.Until(deadline).Milliseconds())
	}
	conn := c.conn
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, false, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	text, err := json.Marshal(body)
	if err != nil {
		return nil, false, err
	}
	var sockets []int
	if op == OpBind {
		sockets = c.Sockets
	}
	if err := writeWith(c.conn, Request{
		Version: cmp.Or(c.version, Version), Op: op, Timeout: timeout, Body: text,
	}, sockets); err != nil {
		return nil, !errors.Is(err, ErrTooLarge), err
	}
	response = &Response{}
	if err := c.reader.Read(response); err != nil {
		return nil, true, fmt.Errorf("no answer to %s: %w", op, err)
	}
	return response, true, nil
}

func decode(body json.RawMessage, out any) error {
	if out == nil {
		return nil
	}
	if len(body) == 0 {
		return errors.New("agent's answer has no body")
	}
	return json.Unmarshal(body, out)
}
