package kube

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
)

// forwarder takes connections in the program's network namespace on to an address in another, so that any client can
// reach the API server.
type forwarder struct {
	listener net.Listener
	netns    string
	to       string

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func newForwarder(ctx context.Context, netns, to string) (*forwarder, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &forwarder{listener: listener, netns: netns, to: to, open: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
	return f, nil
}

func (f *forwarder) addr() string { return f.listener.Addr().String() }

func (f *forwarder) serve(client net.Conn) {
	var server net.Conn
	// A socket stays in the namespace of the thread that made it.
	err := ns.WithNetNSPath(f.netns, func(ns.NetNS) (err error) {
		server, err = net.Dial("tcp", f.to)
		return err
	})
	if err != nil {
		client.Close()
		return
	}
	if !f.keep(client, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pass(client, server) })
	both.Go(func() { pass(server, client) })
	both.Wait()
	f.forget(client, server)
}

// pass copies until the end of from, and tells to.
func pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	if c, ok := to.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
}

func (f *forwarder) keep(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		if f.closed {
			c.Close()
		} else {
			f.open[c] = true
		}
	}
	return !f.closed
}

func (f *forwarder) forget(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(f.open, c)
	}
}

func (f *forwarder) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.open {
		c.Close()
	}
	return f.listener.Close()
}
