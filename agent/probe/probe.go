package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// Socket is a packet socket on a pod's interface, with whole Ethernet frames.
type Socket interface {
	Read(frame []byte) (int, error)
	Write(frame []byte) (int, error)
	SetReadDeadline(t time.Time) error
}

// Conflict is an address that another host answers for.
type Conflict struct {
	Addr netip.Addr
	MAC  net.HardwareAddr // of the other host
}

// questions is how often each address is asked for: PROBE_NUM of RFC 5227, section 1.1.
const questions = 3

// Schedule is the time between two questions for an address, and the time after the last one.
type Schedule struct{ Between, Last time.Duration }

// Unhurried is for a pod that does not wait: PROBE_MIN and ANNOUNCE_WAIT of RFC 5227, section 1.1.
var Unhurried = Schedule{Between: time.Second, Last: 2 * time.Second}

// Within is a schedule that takes this time.
func Within(d time.Duration) Schedule { return Schedule{Between: d / questions, Last: d / questions} }

// maxFrames bounds the work for a host that never stops to answer.
const maxFrames = 4096

// Run asks for the addresses and returns those that another host answers for twice: after the first answer it asks
// again at once. A single answer may be a late advertisement of a pod that had the address before. Run ends early when
// all addresses have a conflict. At the end it announces the addresses that have none (RFC 5227, section 2.3): hosts
// may have missed the announcement of the pod's start, because ovs-vswitchd brings the flows of its datapath up to date
// some milliseconds after OVN has installed the rules.
func Run(
	ctx context.Context, socket Socket, own net.HardwareAddr, addrs []netip.Addr, s Schedule,
) (found []Conflict, err error) {
	if err := socket.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Now()) })()
	asked := map[netip.Addr]*state{}
	for _, a := range addrs {
		asked[a] = &state{}
	}
	r := &run{socket: socket, own: own, asked: asked}
	for n := range questions {
		for a, state := range asked {
			if state.conflict == nil {
				if err := r.ask(a); err != nil {
					return r.conflicts(addrs), err
				}
			}
		}
		pause := s.Between
		if n == questions-1 {
			pause = s.Last
		}
		if err := r.listen(ctx, time.Now().Add(pause)); err != nil || r.open() == 0 {
			return r.conflicts(addrs), err
		}
	}
	return r.conflicts(addrs), r.announce(addrs)
}

type state struct {
	answered bool             // once
	conflict net.HardwareAddr // of who has answered twice; nil: nobody
}

type run struct {
	socket Socket
	own    net.HardwareAddr
	asked  map[netip.Addr]*state
	frames int
}

func (r *run) ask(a netip.Addr) error {
	if _, err := r.socket.Write(question(r.own, a)); err != nil {
		return fmt.Errorf("ask for %s: %w", a, err)
	}
	return nil
}

// announce announces the addresses that have no conflict.
func (r *run) announce(addrs []netip.Addr) error {
	for _, a := range addrs {
		if r.asked[a].conflict != nil {
			continue
		}
		if _, err := r.socket.Write(announcement(r.own, a)); err != nil {
			return fmt.Errorf("announce %s: %w", a, err)
		}
	}
	return nil
}

// open is how many addresses have no conflict yet.
func (r *run) open() int {
	n := 0
	for _, s := range r.asked {
		if s.conflict == nil {
			n++
		}
	}
	return n
}

// listen reads answers until that time, or until all addresses have a conflict.
func (r *run) listen(ctx context.Context, until time.Time) error {
	if err := r.socket.SetReadDeadline(until); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // the deadline that the end of ctx has set may be overwritten
		return err
	}
	frame := make([]byte, 256)
	for r.open() > 0 {
		n, err := r.socket.Read(frame)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("wait for answers: %w", err)
		}
		if r.frames++; r.frames > maxFrames {
			return fmt.Errorf("more than %d answers came", maxFrames)
		}
		a, mac, ok := answer(frame[:n], r.own)
		s := r.asked[a]
		if !ok || s == nil || s.conflict != nil {
			continue
		}
		if s.answered {
			s.conflict = mac
			continue
		}
		s.answered = true
		if err := r.ask(a); err != nil {
			return err
		}
	}
	return nil
}

// conflicts are those that were found, in the order of the addresses.
func (r *run) conflicts(addrs []netip.Addr) (found []Conflict) {
	for _, a := range addrs {
		if mac := r.asked[a].conflict; mac != nil {
			found = append(found, Conflict{Addr: a, MAC: mac})
		}
	}
	return found
}
