package lab

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/dsnet/try"
)

// Link is an interface as the kernel has it.
type Link struct {
	Name  string `json:"ifname"`
	MAC   string `json:"address"`
	MTU   int    `json:"mtu"`
	Addrs []struct {
		Local     string `json:"local"`
		Bits      int    `json:"prefixlen"`
		Scope     string `json:"scope"`
		Tentative bool   `json:"tentative"`
	} `json:"addr_info"`
}

// Prefixes are the link's addresses with their prefix lengths, but for link-local ones.
func (l Link) Prefixes() []string {
	var out []string
	for _, a := range l.Addrs {
		if a.Scope == "global" {
			out = append(out, fmt.Sprintf("%s/%d", a.Local, a.Bits))
		}
	}
	return out
}

// IPs are the link's addresses, but for link-local ones.
func (l Link) IPs() []string {
	var out []string
	for _, a := range l.Addrs {
		if a.Scope == "global" {
			out = append(out, a.Local)
		}
	}
	return out
}

// Links reads the pod's interfaces but for lo, by name.
func (p *Pod) Links(ctx context.Context) (_ map[string]Link, err error) {
	defer try.Handle(&err)
	out := try.E1(p.Exec(ctx, "ip", "-json", "addr"))
	var list []Link
	try.E(json.Unmarshal([]byte(out), &list))
	byName := map[string]Link{}
	for _, l := range list {
		if l.Name != "lo" {
			byName[l.Name] = l
		}
	}
	return byName, nil
}
