package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/dsnet/try"
)

// icmp is what differs between the two families.
type icmp struct {
	network        string
	request, reply byte
	checksum       bool // computed by the sender; the kernel does it for ICMPv6
}

var (
	icmp4 = icmp{network: "ip4:icmp", request: 8, reply: 0, checksum: true}
	icmp6 = icmp{network: "ip6:ipv6-icmp", request: 128, reply: 129}
)

// ping succeeds when at least one of the echo requests is answered.
func ping(args []string) error {
	flags := flag.NewFlagSet("ping", flag.ExitOnError)
	count := flags.Int("c", 1, "how many requests to send")
	wait := flags.Float64("W", 1, "seconds to wait for each answer")
	device := flags.String("I", "", "interface to send by")
	_ = flags.Parse(args)
	to, err := netip.ParseAddr(flags.Arg(0))
	if err != nil || flags.NArg() != 1 {
		return errors.New("wants one IP address")
	}
	proto := icmp4
	if to.Is6() {
		proto = icmp6
	}
	conn, err := proto.open(*device)
	if err != nil {
		return err
	}
	defer conn.Close()
	answered := 0
	for seq := range *count {
		began := time.Now()
		err = proto.echo(conn, to, uint16(seq), time.Duration(*wait*float64(time.Second)))
		if err != nil {
			continue
		}
		answered++
		took := time.Since(began)
		fmt.Printf("%s answers %d in %v\n", to, seq, took.Round(time.Microsecond))
		if pause := time.Second - took; seq+1 < *count && pause > 0 {
			time.Sleep(pause)
		}
	}
	fmt.Printf("%d of %d answered\n", answered, *count)
	if answered == 0 {
		return err
	}
	return nil
}

func (p icmp) open(device string) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		if device == "" {
			return nil
		}
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = syscall.BindToDevice(int(fd), device) }), err)
	}}
	return config.ListenPacket(context.Background(), p.network, "")
}

func (p icmp) echo(conn net.PacketConn, to netip.Addr, seq uint16, wait time.Duration) (err error) {
	defer try.Handle(&err)
	id := uint16(os.Getpid()) ^ uint16(time.Now().UnixNano())
	message := make([]byte, 64)
	message[0] = p.request
	binary.BigEndian.PutUint16(message[4:], id)
	binary.BigEndian.PutUint16(message[6:], seq)
	if p.checksum {
		binary.BigEndian.PutUint16(message[2:], checksum(message))
	}
	try.E(conn.SetDeadline(time.Now().Add(wait)))
	try.E1(conn.WriteTo(message, &net.IPAddr{IP: to.WithZone("").AsSlice(), Zone: to.Zone()}))
	answer := make([]byte, 1500)
	for {
		n, from := try.E2(conn.ReadFrom(answer))
		if n < 8 || answer[0] != p.reply || binary.BigEndian.Uint16(answer[4:]) != id || binary.BigEndian.Uint16(answer[6:]) != seq {
			continue // somebody else's
		}
		if addr, ok := netip.AddrFromSlice(from.(*net.IPAddr).IP); ok && addr.Unmap() == to.WithZone("") {
			return nil
		}
	}
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
