package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
)

var errNoOutside = errors.New("the lab has no outside world: set Options.Physical")

// Outside is a machine of the provider's network, that OVN knows nothing of.
type Outside struct {
	Name string
	VLAN int // of its access port; 0 is untagged
	host
}

// Outside plugs a machine into the switch outside, with an interface eth0 that has these addresses, written like
// 192.0.2.9/24. Its name is its port's too: 15 characters at most.
func (l *Lab) Outside(ctx context.Context, name string, vlan int, addrs ...string) (*Outside, error) {
	if l.tor == nil {
		return nil, errNoOutside
	}
	h, err := l.newHost("outside-"+name, name, filepath.Join(l.Dir, "outside"))
	if err != nil {
		return nil, err
	}
	o := &Outside{Name: name, VLAN: vlan, host: h}
	// Of VLAN 0 is an access port too, else it would be a trunk and hear all VLANs.
	err = l.tor.plug(ctx, name, o.NetNS, "eth0", fmt.Sprintf("tag=%d", vlan), "vlan_mode=access")
	if err == nil {
		err = o.Do(func() error { return addAddrs("eth0", addrs) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plug %s: %w", o, err), o.Close())
	}
	return o, nil
}

func addAddrs(name string, addrs []string) error {
	for _, text := range addrs {
		addr, err := netlink.ParseIPNet(text)
		if err == nil {
			err = addAddr(name, addr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// String is the machine's name as the tests' errors write it.
func (o *Outside) String() string { return "outside machine " + o.Name }

// Route has the machine reach dst, a prefix or "default", by way of a neighbour. It takes the place of an earlier one.
func (o *Outside) Route(ctx context.Context, dst, via string) error {
	family := "-4"
	if strings.Contains(via, ":") {
		family = "-6"
	}
	_, err := o.Exec(ctx, "ip", family, "route", "replace", dst, "via", via)
	return err
}

// Capture captures what comes to the machine.
func (o *Outside) Capture() (*Capture, error) { return capture(o.NetNS, "eth0") }

// Close unplugs the machine.
func (o *Outside) Close() error {
	return errors.Join(o.lab.tor.unplug(context.Background(), o.Name), o.lab.removeNetNS(o.NetNS))
}
