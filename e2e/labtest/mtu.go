package labtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// AnswerShortly answers each datagram on a UDP port of both families with its first byte, until stop.
func AnswerShortly(port int) (stop func(), err error) {
	udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			_, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(buffer[:1], from)
		}
	}()
	return func() { _ = udp.Close() }, nil
}

// AnswerLargely answers each datagram on a UDP port with a packet of a size that begins with the same byte, with DF. When the kernel knows that this is too
// large, it answers with one that fits. So the answers arrive if the ICMP about the first ones does.
func AnswerLargely(port, size, fits int) (stop func(), err error) {
	var sockets []net.PacketConn
	stop = func() {
		for _, udp := range sockets {
			_ = udp.Close()
		}
	}
	for _, family := range []struct {
		network             string
		headers, level, how int
		discover            int
	}{
		{"udp4", 28, unix.IPPROTO_IP, unix.IP_PMTUDISC_DO, unix.IP_MTU_DISCOVER},
		{"udp6", 48, unix.IPPROTO_IPV6, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU_DISCOVER},
	} {
		listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), family.level, family.discover, family.how) })
			return errors.Join(failed, err)
		}}
		udp, err := listen.ListenPacket(context.Background(), family.network, fmt.Sprintf(":%d", port))
		if err != nil {
			stop()
			return nil, err
		}
		sockets = append(sockets, udp)
		go func() {
			buffer := make([]byte, 1<<16)
			for {
				_, from, err := udp.ReadFrom(buffer)
				if err != nil {
					return
				}
				if _, err := udp.WriteTo(buffer[:size-family.headers], from); errors.Is(err, syscall.EMSGSIZE) {
					_, _ = udp.WriteTo(buffer[:fits-family.headers], from)
				}
			}
		}()
	}
	return stop, nil
}

// flow is a UDP socket of one sender, which learns how large its packets may be.
type flow struct {
	net.Conn
	raw     syscall.RawConn
	headers int  // of IP and UDP
	level   int  // of the socket options
	mtu     int  // the option with the path MTU
	asked   byte // packets; the first byte of the last one
}

// openFlow opens a flow that sets DF, or that leaves fragmentation to the network and the kernel.
func openFlow(to string, port int, df bool) (*flow, error) {
	c, err := net.Dial("udp", net.JoinHostPort(to, fmt.Sprint(port)))
	if err != nil {
		return nil, err
	}
	f := &flow{Conn: c, headers: 28, level: unix.IPPROTO_IP, mtu: unix.IP_MTU}
	discover, how := unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if netip.MustParseAddr(to).Is6() {
		f.headers, f.level, f.mtu, discover = 48, unix.IPPROTO_IPV6, unix.IPV6_MTU, unix.IPV6_MTU_DISCOVER
	}
	if !df {
		how = unix.IP_PMTUDISC_DONT
	}
	if f.raw, err = c.(*net.UDPConn).SyscallConn(); err != nil {
		return nil, err
	}
	failed := f.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), f.level, discover, how) })
	return f, errors.Join(failed, err)
}

// path is the path MTU as the kernel knows it.
func (f *flow) path() (mtu int, err error) {
	failed := f.raw.Control(func(fd uintptr) { mtu, err = unix.GetsockoptInt(int(fd), f.level, f.mtu) })
	return mtu, errors.Join(failed, err)
}

// ask sends a packet of a size and reports whether it was answered: late answers to earlier packets do not count.
func (f *flow) ask(size int) (answered bool, err error) {
	f.asked++
	packet := make([]byte, max(size-f.headers, 1))
	packet[0] = f.asked
	if _, err := f.Write(packet); err != nil && !errors.Is(err, syscall.EMSGSIZE) {
		return false, err
	}
	if err := f.SetReadDeadline(time.Now().Add(answerWithin)); err != nil {
		return false, err
	}
	answer := make([]byte, 1)
	for err == nil && answer[0] != f.asked {
		_, err = f.Read(answer)
	}
	return err == nil, nil
}

// answerWithin is the time in which nearly all answers come.
const answerWithin = 400 * time.Millisecond

// attempts is how many packets are lost at most before a path counts as one that loses all of them.
const attempts = 25

// LargePackets sends small UDP packets and then large ones, until one of these is answered, or until the sender knows that
// they are too large. Then a packet of the largest size must be answered. told is what the sender was told; 0: nothing.
func LargePackets(to string, port, size int, df bool) (told int, err error) {
	f, err := openFlow(to, port, df)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	first, err := f.path()
	if err != nil {
		return 0, err
	}
	reached := false
	for range attempts {
		if !reached {
			if reached, err = f.ask(1); err != nil {
				return told, err
			}
			continue
		}
		answered, err := f.ask(size)
		if err != nil {
			return told, err
		}
		now, err := f.path()
		if err != nil {
			return told, err
		}
		if now < first {
			told = now
		}
		if answered {
			return told, nil
		}
		if told != 0 && df {
			size = told
		}
	}
	if !reached {
		return told, errors.New("no answer to a small packet")
	}
	return told, fmt.Errorf("no packet of %d bytes is answered, and the sender was told %d (0: nothing)", size, told)
}
