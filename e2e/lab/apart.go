package lab

import (
	"errors"
	"io"
	"net"
	"path/filepath"
)

// Apart is a machine without a link: an operator's, far away from the nodes. It reaches one TCP address, which is on its
// own lo, and no other.
type Apart struct {
	host
	listener net.Listener
}

// Apart makes a machine that reaches an address of the central namespace alone, such as an API server's.
func (l *Lab) Apart(name, address string) (*Apart, error) {
	h, err := l.newHost("apart-"+name, name, filepath.Join(l.Dir, "apart"))
	if err != nil {
		return nil, err
	}
	a := &Apart{host: h}
	ip, _, err := net.SplitHostPort(address)
	if err == nil {
		err = a.Do(func() (err error) {
			if err = addAddrs("lo", []string{ip + "/32"}); err == nil {
				a.listener, err = net.Listen("tcp", address)
			}
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, l.removeNetNS(h.NetNS))
	}
	go func() {
		for {
			conn, err := a.listener.Accept()
			if err != nil {
				return // the machine is closed
			}
			go a.forward(conn, address)
		}
	}()
	return a, nil
}

// forward connects a client to the address in the central namespace, until one of both ends.
func (a *Apart) forward(client net.Conn, address string) {
	defer client.Close()
	var server net.Conn
	err := a.lab.OnCentral(func() (err error) {
		server, err = net.Dial("tcp", address)
		return err
	})
	if err != nil {
		return // the client sees that its connection ends
	}
	defer server.Close()
	ended := make(chan struct{}, 2)
	relay := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go relay(server, client)
	go relay(client, server)
	<-ended
}

// Close ends the machine.
func (a *Apart) Close() error {
	return errors.Join(a.listener.Close(), a.lab.removeNetNS(a.NetNS))
}
