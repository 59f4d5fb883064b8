package denied

import (
	"strings"
	"testing"
)

const (
	key  = "01234567-89ab-8def-8123-456789abcdef"
	head = "2026-11-25T14:40:01.123Z|00012|acl_log(ovn_pinctrl0)|INFO|"
	name = `name="shop/db ingress deny ` + key + `", verdict=drop, severity=info, direction=to-lport: `
	flow = "tcp,vlan_tci=0x0000,dl_src=0a:58:0a:01:00:0a,dl_dst=0a:58:0a:01:00:0b,nw_src=10.1.0.10,nw_dst=10.1.0.11," +
		"nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,tp_src=41234,tp_dst=5432,tcp_flags=syn"
)

func TestParseLine(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"OVN 23.03 and 25.03", head + name + flow, "tcp 10.1.0.10 41234 10.1.0.11 5432"},
		{"module without a thread", strings.Replace(head, "(ovn_pinctrl0)", "", 1) + name + flow, "tcp 10.1.0.10 41234 10.1.0.11 5432"},
		{"IPv6", head + name + "udp6,ipv6_src=fd01::a,ipv6_dst=fd01::b,tp_src=9,tp_dst=53", "udp6 fd01::a 9 fd01::b 53"},
		{"ICMP", head + name + "icmp,nw_src=10.1.0.10,nw_dst=10.1.0.11,icmp_type=8,icmp_code=0", "icmp 10.1.0.10  10.1.0.11 "},
		{"a colon in the name", head + strings.Replace(name, "deny", "deny: x", 1) + flow, "tcp 10.1.0.10 41234 10.1.0.11 5432"},
		{"another module", strings.Replace(head, "acl_log", "main", 1) + name + flow, ""},
		{"another module that quotes a line", "a|1|main|INFO|port x|acl_log|INFO|" + name + flow, ""},
		{"an ACL of somebody else", head + strings.Replace(name, " "+key, "", 1) + flow, ""},
		{"the key is not the end of the name", head + strings.Replace(name, key, key+" x", 1) + flow, ""},
		{"the key is in another name", head + `name="a\" ` + key + `", verdict=drop, severity=info, direction=to-lport: ` + flow, ""},
		{"an allowed packet", head + strings.Replace(name, "drop", "allow", 1) + flow, ""},
		{"ARP", head + name + "arp,arp_spa=10.1.0.10,arp_tpa=10.1.0.11", ""},
		{"an address that is none", head + name + "tcp,nw_src=10.1.0.10,nw_dst=10.1", ""},
		{"ports that are none", head + name + "tcp,nw_src=10.1.0.10,nw_dst=10.1.0.11,tp_src=a b,tp_dst=70000", "tcp 10.1.0.10  10.1.0.11 "},
		{"no text", head, ""},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := parse(tt.line)
			got := strings.Join([]string{p.protocol, p.source.String(), p.sourcePort, p.target.String(), p.targetPort}, " ")
			if !ok {
				got = ""
			} else if p.acl != key {
				t.Errorf("the ACL %q, want %q", p.acl, key)
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(head + name + flow)
	f.Fuzz(func(t *testing.T, line string) {
		if p, ok := parse(line); ok && (len(p.acl) != 36 || !p.source.IsValid() || !p.target.IsValid()) {
			t.Errorf("%q is %+v", line, p)
		}
	})
}
