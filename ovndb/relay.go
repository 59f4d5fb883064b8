package ovndb

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// Relay connects to the leader of the database that cfg names, writes the endpoint as one line, and then passes a
// client's requests from in to the server, and the server's messages to out. It ends with in, or with the connection.
// Only requests that read pass: another one is an error, and ends the relay.
func Relay(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialing, stop := context.WithTimeout(ctx, cmp.Or(cfg.Patience, defaultPatience))
	defer stop()
	server, endpoint, err := newEndpoints(cfg).dialLeader(dialing, cfg)
	if err != nil {
		return fmt.Errorf("%s database is not reachable: %w", cfg.Name, err)
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if _, err := fmt.Fprintln(out, endpoint); err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(out, server)
		ended <- err
	}()
	go func() { ended <- passReads(server, in) }()
	return <-ended
}

// dialLeader connects to the leader, and returns the stream before any message.
func (p *endpoints) dialLeader(ctx context.Context, cfg Config) (net.Conn, string, error) {
	leader, err := newRemote(p, cfg, defaultPatience).dialLeader(ctx)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = leader.rpc.Close() }()
	stream, err := p.dial(ctx, leader.endpoint)
	if t, ok := stream.(*tls.Conn); ok && err == nil {
		err = t.HandshakeContext(ctx)
	}
	return stream, leader.endpoint, err
}

// passReads passes requests on until the end of in.
func passReads(server io.Writer, in io.Reader) error {
	for requests := json.NewDecoder(in); ; {
		var request map[string]json.RawMessage
		if err := requests.Decode(&request); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := onlyReads(request); err != nil {
			return err
		}
		// What was read is written, and not the text: two programs may read one text differently.
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		if _, err := server.Write(text); err != nil {
			return err
		}
	}
}

// onlyReads returns an error for a request (RFC 7047, section 4.1) that may do more than to read.
func onlyReads(request map[string]json.RawMessage) error {
	var method string
	if text, ok := request["method"]; ok {
		if err := json.Unmarshal(text, &method); err != nil {
			return err
		}
	}
	switch method {
	case "", "echo", "list_dbs", "get_schema": // without a method it is the answer to the server's echo
		return nil
	case "transact":
	default:
		return fmt.Errorf("only requests that read pass, not %q", method)
	}
	var params []json.RawMessage
	if err := json.Unmarshal(request["params"], &params); err != nil || len(params) == 0 {
		return errors.New("a transaction without a database")
	}
	ops := make([]map[string]json.RawMessage, len(params)-1)
	for i, text := range params[1:] {
		if err := json.Unmarshal(text, &ops[i]); err != nil {
			return err
		}
		if op := string(ops[i]["op"]); op != `"select"` {
			return fmt.Errorf("only transactions that read pass, not the operation %s", op)
		}
		params[i+1], _ = json.Marshal(ops[i]) // as it was read
	}
	request["params"], _ = json.Marshal(params)
	return nil
}
