//go:build sriov

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

const sctpService = `apiVersion: v1
kind: Service
metadata:
  namespace: shop
  name: mme
  labels: {service.kubernetes.io/service-proxy-name: ovn-multinet}
  annotations:
    ovn-multinet/service-network: green
    ovn-multinet/service-selector: app=mme
    ovn-multinet/service-address: 10.2.200.1,fd02::c801
spec: {clusterIP: None, ports: [{name: s1ap, protocol: SCTP, port: 36412, targetPort: 36413}]}
`

// TestServiceSCTP: associations of SCTP to the virtual addresses of a Service reach the backends on both nodes, from both
// nodes and from a backend itself. The backends see the client's own address, except that of a backend that connects to
// itself. Only the kernel's datapath translates the addresses of SCTP.
func TestServiceSCTP(t *testing.T) {
	w := newWorld(t)
	vips := []string{"10.2.200.1", "fd02::c801"}
	var backends, clients []*lab.Pod
	for node := range w.Nodes {
		p := w.Pod(node, fmt.Sprint("mme-", node), "green")
		p.Labels = map[string]string{"app": "mme"}
		w.Must(p.WriteManifest())
		w.Add(p)
		for _, ip := range w.Links(p)["net1"].IPs() {
			w.answerSCTP(p, ip)
		}
		backends = append(backends, p)
		clients = append(clients, w.Attached(node, fmt.Sprint("enb-", node), "green"))
	}
	w.Must(w.WriteManifest("service-mme.yaml", sctpService))
	w.Eventually(w.sctpServed)
	w.NBCtl("--wait=hv", "sync")
	for _, from := range append(clients, backends[0]) {
		for i, vip := range vips {
			own, seen := w.Links(from)["net1"].IPs()[i], map[string]string{} // the client's address, by the backend
			w.Eventually(func() error {                                      // the choice is by chance
				answer, err := askSCTP(from, own, vip)
				if err != nil {
					return fmt.Errorf("%s to %s: %w", from, vip, err)
				}
				seen[answer.Backend] = answer.Client
				if len(seen) < len(backends) {
					return fmt.Errorf("of %d backends only %v answer %s at %s", len(backends), seen, from, vip)
				}
				return nil
			})
			for backend, client := range seen {
				want := own
				if backend == from.Name {
					want = vip
				}
				equal(t, fmt.Sprintf("client %s at %s, as %s sees it", from, vip, backend), client, want)
			}
		}
	}
	w.Must(w.RemoveManifest("service-mme.yaml"))
	w.Over(append(clients, backends...)...)
}

// sctpServed is an error until the Service is ready.
func (w *world) sctpServed() error {
	text, err := os.ReadFile(filepath.Join(w.Manifests, "shop.mme.service.json"))
	if err != nil {
		return err
	}
	var state struct {
		Service struct {
			Ready  bool
			Reason string
		}
	}
	if err = json.Unmarshal(text, &state); err == nil && !state.Service.Ready {
		err = errors.New(state.Service.Reason)
	}
	return err
}

// sctpAnswer is what a backend tells a client.
type sctpAnswer struct{ Backend, Client string }

// answerSCTP has a pod answer each association at an address, until the test's end.
func (w *world) answerSCTP(p *lab.Pod, ip string) {
	w.T.Helper()
	var l net.Listener
	w.Must(p.Do(func() error {
		fd, err := sctpSocket(ip, 36413)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "sctp")
		defer file.Close()
		if err := unix.Listen(fd, 16); err != nil {
			return err
		}
		l, err = net.FileListener(file) // Go takes the socket for one of TCP; its calls are the same
		return err
	}))
	w.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			client := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			text, _ := json.Marshal(sctpAnswer{p.Name, client.String()})
			_, _ = c.Write(text) // a client that gets nothing fails
			c.Close()
		}
	}()
}

// askSCTP opens an association from a pod's address and returns the answer.
func askSCTP(from *lab.Pod, own, to string) (answer sctpAnswer, err error) {
	err = from.Do(func() error {
		fd, err := sctpSocket(own, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		limit := unix.Timeval{Sec: 10}
		for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
				return err
			}
		}
		if err := unix.Connect(fd, sockaddr(to, 36412)); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		text := make([]byte, 1000)
		n, err := unix.Read(fd, text)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		return json.Unmarshal(text[:n], &answer)
	})
	return answer, err
}

// sctpSocket is bound to one address: SCTP tells its peer all addresses of the socket, and OVN translates only one.
func sctpSocket(ip string, port int) (fd int, err error) {
	family := unix.AF_INET
	if netip.MustParseAddr(ip).Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP); err != nil {
		return 0, fmt.Errorf("socket of SCTP: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(ip, port)); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("bind %s: %w", ip, err)
	}
	return fd, nil
}

func sockaddr(ip string, port int) unix.Sockaddr {
	a := netip.MustParseAddr(ip)
	if a.Is6() {
		return &unix.SockaddrInet6{Port: port, Addr: a.As16()}
	}
	return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
}
