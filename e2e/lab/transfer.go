package lab

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"time"

	"github.com/dsnet/try"
)

// TransferSize is how many bytes Transfer sends.
const TransferSize = 1 << 20

// Transfer sends a megabyte over TCP to an address of a pod and compares what arrives.
func Transfer(from, to *Pod, ip string) (err error) {
	defer try.Handle(&err)
	const patience = time.Minute // an emulated machine is slow
	var l net.Listener
	try.E(to.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(ip, "0"))
		return err
	}))
	defer l.Close()
	sent := make([]byte, TransferSize)
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
	try.E(from.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", l.Addr().String(), patience)
		return err
	}))
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = conn.Write(sent)
	return errors.Join(err, conn.Close(), <-received)
}
