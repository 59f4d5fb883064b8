package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"

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

// lookup prints what a name stands for, one answer a line, by /etc/resolv.conf. A name without answers prints nothing.
func lookup(args []string) error {
	flags := flag.NewFlagSet("lookup", flag.ExitOnError)
	kind := flags.String("type", "host", "A, AAAA, SRV or PTR; host is A and AAAA")
	_ = flags.Parse(args)
	if flags.NArg() != 1 {
		return errors.New("wants one name")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answers, err := ask(ctx, *kind, flags.Arg(0))
	var none *net.DNSError
	if errors.As(err, &none) && none.IsNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	for _, answer := range answers {
		fmt.Println(answer)
	}
	return nil
}

func ask(ctx context.Context, kind, name string) (answers []string, err error) {
	resolver := net.Resolver{PreferGo: true}
	networks := map[string]string{"host": "ip", "A": "ip4", "AAAA": "ip6"}
	switch kind {
	case "PTR":
		return resolver.LookupAddr(ctx, name)
	case "SRV":
		_, records, err := resolver.LookupSRV(ctx, "", "", name)
		for _, r := range records {
			answers = append(answers, fmt.Sprintf("%s:%d", r.Target, r.Port))
		}
		return answers, err
	case "host", "A", "AAAA":
		addresses, err := resolver.LookupNetIP(ctx, networks[kind], name)
		for _, a := range addresses {
			answers = append(answers, a.Unmap().String())
		}
		return answers, err
	}
	return nil, fmt.Errorf("%s is not a type of answers", kind)
}
