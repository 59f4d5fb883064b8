package denied

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// packet is what a line of ovn-controller says of a packet that an ACL has denied.
type packet struct {
	acl        string // the row key of the ACL
	protocol   string
	source     netip.Addr
	target     netip.Addr
	sourcePort string
	targetPort string
}

// aclName finds the row key at the end of the name of an ACL. The controller writes it there, and writes no quotes and
// backslashes.
var aclName = regexp.MustCompile(
	`^name="[^"\\]* ([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", verdict=drop, `)

// parse reads a line of the log (ovs-vswitchd(8), "Logging"; OVN's action log): time, number, module, level and text,
// separated by |. Other modules write words of tenants too, so the module is compared before the text.
func parse(line string) (p packet, ok bool) {
	fields := strings.SplitN(line, "|", 5)
	if len(fields) != 5 || fields[2] != "acl_log" && !strings.HasPrefix(fields[2], "acl_log(") {
		return p, false
	}
	name := aclName.FindStringSubmatch(fields[4])
	if name == nil {
		return p, false
	}
	_, flow, _ := strings.Cut(fields[4][len(name[0]):], ": ")
	p.acl = name[1]
	for i, word := range strings.Split(flow, ",") {
		key, value, pair := strings.Cut(word, "=")
		switch {
		case i == 0 && !pair:
			p.protocol = word
		case key == "nw_src" || key == "ipv6_src":
			p.source, _ = netip.ParseAddr(value)
		case key == "nw_dst" || key == "ipv6_dst":
			p.target, _ = netip.ParseAddr(value)
		case key == "tp_src":
			p.sourcePort = number(value)
		case key == "tp_dst":
			p.targetPort = number(value)
		}
	}
	return p, p.source.IsValid() && p.target.IsValid()
}

// number returns a text that is a port, and otherwise nothing.
func number(text string) string {
	if _, err := strconv.ParseUint(text, 10, 16); err != nil {
		return ""
	}
	return text
}
