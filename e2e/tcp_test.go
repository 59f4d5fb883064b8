package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestTCP sends a megabyte from pod to pod, between nodes and on one node, over IPv4 and IPv6. Pings pass where TCP
// does not: a userspace datapath drops what the kernel left without a checksum.
func TestTCP(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	from, near, far := w.attached(0, "from", "green"), w.attached(0, "near", "green"), w.attached(1, "far", "green")
	for _, to := range []*lab.Pod{near, far} {
		for _, ip := range w.links(to)["net1"].ips() {
			w.mustReach(from, ip)
			w.must(transfer(from, to, ip))
		}
	}
	w.end(from, near, far)
	w.asBefore()
}

// transfer sends a megabyte to an address of a pod and compares what arrives.
func transfer(from, to *lab.Pod, ip string) error {
	const patience = 20 * time.Second
	var l net.Listener
	err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(ip, "0"))
		return err
	})
	if err != nil {
		return err
	}
	defer l.Close()
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	received := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			received <- err
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(conn)
		if err == nil && !bytes.Equal(got, sent) {
			err = errors.New("what arrived is not what was sent")
		}
		received <- err
	}()
	var conn net.Conn
	err = from.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", l.Addr().String(), patience)
		return err
	})
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = conn.Write(sent)
	return errors.Join(err, conn.Close(), <-received)
}
