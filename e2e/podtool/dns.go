package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"

	"github.com/dsnet/try"
	"golang.org/x/net/dns/dnsmessage"
)

// answer is what every name stands for (RFC 5737, documentation).
var answer = [4]byte{192, 0, 2, 53}

// serveDNS answers every question for an address over UDP.
func serveDNS(args []string) (err error) {
	defer try.Handle(&err)
	flags := flag.NewFlagSet("dns", flag.ExitOnError)
	port := flags.Int("port", 53, "where to listen")
	_ = flags.Parse(args)
	conn := try.E1(net.ListenPacket("udp", fmt.Sprintf(":%d", *port)))
	buf := make([]byte, 1500)
	for {
		n, from := try.E2(conn.ReadFrom(buf))
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.Additionals = true, nil
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: answer}}}
		}
		if packed, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(packed, from) // who does not hear it asks again
		}
	}
}

// lookup prints what a name stands for, by /etc/resolv.conf.
func lookup(args []string) error {
	if len(args) != 1 {
		return errors.New("wants one name")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resolver := net.Resolver{PreferGo: true}
	addrs, err := resolver.LookupHost(ctx, args[0])
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(addrs, " "))
	return nil
}
