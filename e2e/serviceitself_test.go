package e2e

import (
	"fmt"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// sendFrom sends one datagram from an address that the sender does not have.
func (w *world) sendFrom(from place, source, to string, port int) {
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}
	dialer.Control = func(network, _ string, c syscall.RawConn) (err error) {
		level, option := unix.SOL_IP, unix.IP_TRANSPARENT
		if network == "udp6" {
			level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		}
		if wrong := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); wrong != nil {
			return wrong
		}
		return err
	}
	w.Must(from.Do(func() error {
		c, err := dialer.Dial("udp", net.JoinHostPort(to, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("there?"))
		return err
	}))
}

// TestServiceReachesItself: a pod whose policy allows nothing reaches itself by the virtual address of its Service, as in
// Kubernetes. Nobody else does, not even a pod that sends from the virtual address.
func TestServiceReachesItself(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) {
		controllerConfig(t, l, "portSecurityOff: {namespaces: [shop]}\n")
	})
	w.network("loose", `{"type":"ovn-multinet","subnets":"10.9.0.0/24,fd09::/64","portSecurity":false}`)
	w.Base = w.Snapshot()
	db := w.labelled(0, "db-0", "loose", map[string]string{"app": "db"})
	counts := w.answer(db, 8080, 90)
	vips := w.service("db", serviceYAML("db", "loose", `"10.9.0.200,fd09::c8"`, webPorts, ""))
	others := []*lab.Pod{w.labelled(0, "near", "loose", nil), w.labelled(1, "far", "loose", nil)}
	addrs := w.Links(db)["net1"].IPs()
	for _, p := range others {
		for i, vip := range vips {
			w.allowed(p, vip, "tcp/80")
			before := counts.of("udp/90")
			w.Eventually(func() error {
				if w.sendFrom(p, vip, addrs[i], 90); counts.of("udp/90") == before {
					return fmt.Errorf("nothing has come from %s", vip)
				}
				return nil
			})
		}
	}
	w.policy("silent", "loose", silent)
	w.NBCtl("--wait=hv", "sync")
	for i, vip := range vips {
		for range 4 {
			w.allowed(db, vip, "tcp/80")
			w.allowed(db, vip, "udp/53")
		}
		before := counts.of("udp/90")
		for _, p := range others {
			for range 10 {
				w.sendFrom(p, vip, addrs[i], 90)
			}
			w.denied(p, vip, "tcp/80")
			w.denied(p, addrs[i], "udp/90") // the datagrams before have come or have been dropped
		}
		equal(t, "datagrams from the virtual address", counts.of("udp/90")-before, 0)
	}
	w.Must(w.RemoveManifest(policyManifest("silent")))
	w.Must(w.RemoveManifest(serviceManifest("db")))
	w.Over(append(others, db)...)
}
