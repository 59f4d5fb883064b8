//go:build bench

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/dsnet/try"
)

// namespace is a network namespace that a socket is opened in.
type namespace interface{ Do(f func() error) error }

// pinger sends echo requests (RFC 792) from a network namespace. Its socket is open before there is an interface.
type pinger struct {
	conn net.PacketConn
	id   uint16
}

var pingers atomic.Uint32

func newPinger(from namespace) (*pinger, error) {
	p := &pinger{id: uint16(os.Getpid()) ^ uint16(pingers.Add(1))<<4}
	return p, from.Do(func() (err error) {
		p.conn, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "ip4:icmp", "")
		return err
	})
}

// echo is what became of a first echo request.
type echo struct {
	sent time.Time
	lost bool
	gap  time.Duration // from the first request to the first one that was answered
}

const (
	apart    = time.Millisecond       // between requests until one is answered
	straggle = 100 * time.Millisecond // how long the first answer may come behind a later one
	hopeless = 20 * time.Second
)

// first sends one echo request now, and further ones until one is answered.
func (p *pinger) first(to netip.Addr) (e echo, err error) {
	defer try.Handle(&err)
	defer p.conn.Close()
	var sent []time.Time
	send := func() {
		message := echoRequest(p.id, uint16(len(sent)))
		sent = append(sent, time.Now())
		try.E1(p.conn.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}))
	}
	send()
	answered, end := 0, sent[0].Add(hopeless)
	for time.Now().Before(end) {
		wait := end
		if answered == 0 {
			wait = time.Now().Add(apart)
		}
		seq, err := p.answer(to, wait)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && answered == 0:
			send()
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return e, err
		case seq == 0:
			return echo{sent: sent[0]}, nil
		case answered == 0:
			answered, end = seq, time.Now().Add(straggle)
		}
	}
	if answered == 0 {
		return e, errors.New("no echo request was answered")
	}
	return echo{sent: sent[0], lost: true, gap: sent[answered].Sub(sent[0])}, nil
}

// answer reads the number of the next request that is answered.
func (p *pinger) answer(from netip.Addr, wait time.Time) (seq int, err error) {
	if err := p.conn.SetReadDeadline(wait); err != nil {
		return 0, err
	}
	for message := make([]byte, 1500); ; {
		n, by, err := p.conn.ReadFrom(message)
		if err != nil {
			return 0, err
		}
		const reply = 0
		if n >= 8 && message[0] == reply && binary.BigEndian.Uint16(message[4:]) == p.id && by.String() == from.String() {
			return int(binary.BigEndian.Uint16(message[6:])), nil
		}
	}
}

func echoRequest(id, seq uint16) []byte {
	const request = 8
	m := make([]byte, 16)
	m[0] = request
	binary.BigEndian.PutUint16(m[4:], id)
	binary.BigEndian.PutUint16(m[6:], seq)
	sum := uint32(0) // RFC 1071
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}
