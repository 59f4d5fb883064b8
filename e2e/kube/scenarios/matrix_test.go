//go:build kube

package scenarios

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// patience bounds each wait for something to come back: a machine of two processors does much at once here.
const patience = 5 * time.Minute

// until waits for a state.
func (w *world) until(is func() error) {
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	w.Must(lab.Eventually(ctx, is))
}

// stream is a pod that pings another one all the time, from the test's own process: what happens to kubelet or to the
// API server is nothing to it.
type stream struct {
	name  string
	conn  net.PacketConn
	to    netip.Addr
	id    uint16
	proto byte // type of a request
	every time.Duration

	mu       sync.Mutex
	sent     uint64
	open     map[uint64]bool // requests without an answer
	last     uint64          // the last one that was answered
	row      int             // how many up to it were answered without a gap
	stop     chan struct{}
	finished sync.WaitGroup
}

// pingEvery is the pause between two requests of a stream.
const pingEvery = 20 * time.Millisecond

// stream starts one from a pod's interface to an address, which it reaches already.
func (w *world) stream(from, ifName, to string) *stream {
	s := w.newStream(from, ifName, to, pingEvery)
	w.Must(s.comesBack(w.Ctx))
	return s
}

// newStream starts a stream to an address that may not answer.
func (w *world) newStream(from, ifName, to string, every time.Duration) *stream {
	id, _, _ := at(from)
	p := w.getPod(id)
	path, err := w.Node(p.Spec.NodeName).PodNetNS(w.Ctx, id)
	w.Must(err)
	s := &stream{
		name: from + " by " + ifName + " to " + to, to: netip.MustParseAddr(to), id: uint16(os.Getpid()), every: every,
		open: map[uint64]bool{}, stop: make(chan struct{}),
	}
	network := "ip4:icmp"
	if s.proto = 8; s.to.Is6() {
		network, s.proto = "ip6:ipv6-icmp", 128
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = syscall.BindToDevice(int(fd), ifName) }), err)
	}}
	w.Must(ns.WithNetNSPath(path, func(ns.NetNS) (err error) {
		s.conn, err = config.ListenPacket(w.Ctx, network, "")
		return err
	}))
	s.finished.Go(s.send)
	s.finished.Go(s.receive)
	w.T.Cleanup(s.close)
	return s
}

func (s *stream) close() {
	close(s.stop)
	_ = s.conn.Close()
	s.finished.Wait()
}

func (s *stream) send() {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		s.sent++
		s.open[s.sent] = true
		message := s.request(s.sent)
		s.mu.Unlock()
		// What cannot be sent is as lost as what is not answered.
		_, _ = s.conn.WriteTo(message, &net.IPAddr{IP: s.to.AsSlice()})
	}
}

// request is an echo request (RFC 792, RFC 4443) with its number as data. The kernel computes ICMPv6's checksum.
func (s *stream) request(number uint64) []byte {
	message := make([]byte, 16)
	message[0] = s.proto
	binary.BigEndian.PutUint16(message[4:], s.id)
	binary.BigEndian.PutUint16(message[6:], uint16(number))
	binary.BigEndian.PutUint64(message[8:], number)
	if s.to.Is4() {
		var sum uint32
		for i := 0; i < len(message); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(message[i:]))
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(message[2:], ^uint16(sum&0xffff+sum>>16))
	}
	return message
}

func (s *stream) receive() {
	reply := map[byte]byte{8: 0, 128: 129}[s.proto]
	answer := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(answer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 16 || answer[0] != reply || binary.BigEndian.Uint16(answer[4:]) != s.id {
			continue
		}
		if addr, ok := netip.AddrFromSlice(from.(*net.IPAddr).IP); !ok || addr.Unmap() != s.to {
			continue
		}
		s.mu.Lock()
		number := binary.BigEndian.Uint64(answer[8:])
		delete(s.open, number)
		if number != s.last+1 {
			s.row = 0
		}
		s.last, s.row = number, s.row+1
		s.mu.Unlock()
	}
}

// answered is how many requests have been answered, of how many.
func (s *stream) answered() (answered, sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.sent) - len(s.open), int(s.sent)
}

// lostNothing returns when all requests until now have been answered, since the stream's start or since it last came back.
func (s *stream) lostNothing(ctx context.Context) error {
	s.mu.Lock()
	sent := s.sent
	s.mu.Unlock()
	// An answer that takes longer than this is none: nothing on the way holds a packet back.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return lab.Eventually(ctx, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		lost := 0
		for number := range s.open {
			if number <= sent {
				lost++
			}
		}
		if lost > 0 {
			return fmt.Errorf("%s: %d of %d requests were not answered", s.name, lost, sent)
		}
		return nil
	})
}

// comesBack returns when requests from now on are answered, one after the other. What was lost until then does not count.
func (s *stream) comesBack(ctx context.Context) error {
	const row = 10
	s.mu.Lock()
	first := s.sent
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return lab.Eventually(ctx, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.row < row || s.last < first+row {
			return fmt.Errorf("%s: of %d requests only %d after the last gap were answered", s.name, s.sent-first, s.row)
		}
		for number := range s.open {
			if number < s.last {
				delete(s.open, number)
			}
		}
		return nil
	})
}

// row is a row of a database, by column, as its JSON (RFC 7047, section 5.1).
type row map[string]json.RawMessage

// tableOf reads what ovs-vsctl and ovn-nbctl print with --format=json.
func tableOf(text string, err error) ([]row, error) {
	var table struct {
		Headings []string
		Data     [][]json.RawMessage
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	var rows []row
	for _, data := range table.Data {
		r := row{}
		for i, heading := range table.Headings {
			r[heading] = data[i]
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// text is a column with a string or a number in it, "" for an empty one.
func (r row) text(column string) string {
	if strings.HasPrefix(string(r[column]), `["set"`) {
		return ""
	}
	return strings.Trim(string(r[column]), `"`)
}

// ids is a column with a map in it.
func (r row) ids(column string) map[string]string {
	var m [2]json.RawMessage
	var pairs [][2]string
	_ = json.Unmarshal(r[column], &m)
	_ = json.Unmarshal(m[1], &pairs)
	ids := map[string]string{}
	for _, p := range pairs {
		ids[p[0]] = p[1]
	}
	return ids
}

// exact holds what there is of ours in NB, in every node's Open vSwitch and kernel and in the plugin's journals against the pods
// that live: all of theirs, and nothing else but what others have, which is given in the same words.
func (w *world) exact(others ...string) error {
	want, err := w.wanted(others)
	if err != nil {
		return err
	}
	got, err := w.there()
	if err != nil {
		return err
	}
	slices.Sort(want)
	slices.Sort(got)
	var diff []string
	for _, line := range want {
		if !slices.Contains(got, line) {
			diff = append(diff, "missing: "+line)
		}
	}
	for i, line := range got {
		if !slices.Contains(want, line) || i > 0 && got[i-1] == line {
			diff = append(diff, "too much: "+line)
		}
	}
	if len(diff) > 0 {
		return errors.New(strings.Join(diff, "\n"))
	}
	return nil
}

// known are the sandboxes of pods by UID: a pod of these tests has one for its life, so that another one is a fault.
var known sync.Map

func (w *world) sandboxOf(p *corev1.Pod) (string, error) {
	if id, ok := known.Load(p.UID); ok {
		return id.(string), nil
	}
	id, err := w.Node(p.Spec.NodeName).SandboxID(w.Ctx, p.Namespace+"/"+p.Name)
	if err == nil && podIsReady(p) {
		known.Store(p.UID, id)
	}
	return id, err
}

func podIsReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// wanted lists what living pods have, a line for each thing.
func (w *world) wanted(others []string) ([]string, error) {
	lines := []string{"claim ovn-multinet cluster"}
	for _, n := range w.Nodes {
		lines = append(lines, "claim ovn-multinet node "+n.Name)
	}
	lines = append(lines, others...)
	pods, err := w.Client.CoreV1().Pods("").List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		names := p.Annotations["k8s.v1.cni.cncf.io/networks"]
		if names == "" || p.Annotations["k8s.v1.cni.cncf.io/network-status"] == "" {
			continue // it has no networks, or should have none: then what it has is too much
		}
		n, uid := w.Node(p.Spec.NodeName), string(p.UID)
		if mirrored := p.Annotations[corev1.MirrorPodAnnotationKey]; mirrored != "" {
			uid = mirrored // a static pod's on its node
		}
		sandbox, err := w.sandboxOf(&p)
		if err != nil {
			return nil, err
		}
		lines = append(lines, n.Name+" journal "+sandbox+"@eth0")
		all, err := networksOf(names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		for i, network := range all {
			ifName := fmt.Sprintf("net%d", i+1)
			port, end := p.Namespace+"/"+p.Name+"/"+ifName, agentapi.HostVeth(sandbox, ifName)
			lines = append(lines,
				"port "+port+" of "+sandbox+" "+uid+" "+n.Name,
				n.Name+" plug "+end+" "+port+" "+sandbox+" "+uid+" installed=true error= taken=true",
				n.Name+" switched "+end, n.Name+" link "+end)
			if network == "green" {
				lines = append(lines, "claim of "+port) // of its second address
			}
		}
	}
	return lines, nil
}

// networksOf reads an annotation of networks, in either of its forms.
func networksOf(annotation string) (names []string, err error) {
	if !strings.HasPrefix(annotation, "[") {
		return strings.Split(annotation, ","), nil
	}
	var elements []struct{ Name string }
	err = json.Unmarshal([]byte(annotation), &elements)
	for _, e := range elements {
		names = append(names, e.Name)
	}
	return names, err
}

// there lists what there is.
func (w *world) there() ([]string, error) {
	ports, err := tableOf(w.NBCtl(w.Ctx, "--format=json", "--columns=_uuid,name,external_ids", "list", "Logical_Switch_Port"))
	if err != nil {
		return nil, err
	}
	var lines []string
	keys := ""
	for _, r := range ports {
		ids := r.ids("external_ids")
		keys += string(r["_uuid"])
		lines = append(lines, strings.TrimSpace("port "+r.text("name")+" of "+ids["ovn-multinet/sandbox"]+" "+ids["ovn-multinet/pod-uid"]+" "+ids["ovn-multinet/node"]))
	}
	claims, err := tableOf(w.NBCtl(w.Ctx, "--format=json", "--columns=name,external_ids", "list", "Copp"))
	if err != nil {
		return nil, err
	}
	for _, r := range claims {
		for _, port := range listedPorts(r) {
			if !strings.Contains(keys, port) {
				lines = append(lines, "entry in a port list of "+port+", which does not exist")
			}
		}
		kind := r.ids("external_ids")["ovn-multinet/kind"]
		if kind == "port-list" || kind == "accepted" || kind == "mtu" || strings.HasPrefix(kind, "ended-connections") {
			continue
		}
		line := "claim " + r.text("name")
		if port := r.ids("external_ids")["ovn-multinet/port-name"]; port != "" {
			line = "claim of " + port
		}
		lines = append(lines, line)
	}
	for _, n := range w.Nodes {
		more, err := w.thereOn(n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		for _, line := range more {
			lines = append(lines, n.Name+" "+line)
		}
	}
	return lines, nil
}

// thereOn lists what there is on a node: the database of Open vSwitch, what ovs-vswitchd makes of it, the kernel's links, the
// plugin's files.
func (w *world) thereOn(n *kube.Node) (lines []string, err error) {
	plugs, err := tableOf(n.VSCtl(w.Ctx, "--no-wait", "--format=json", "--columns=name,external_ids,ofport,error", "list", "Interface"))
	if err != nil {
		return nil, err
	}
	for _, r := range plugs {
		if ids := r.ids("external_ids"); ids["sandbox"] != "" {
			lines = append(lines, fmt.Sprintf("plug %s %s %s %s installed=%s error=%s taken=%t", r.text("name"), ids["iface-id"], ids["sandbox"],
				ids["iface-id-ver"], ids["ovn-installed"], r.text("error"), r.text("ofport") != "" && r.text("ofport") != "-1"))
		} else if r.text("error") != "" {
			lines = append(lines, "error of "+r.text("name")+": "+r.text("error"))
		}
	}
	out, err := n.Run(w.Ctx, "ovs-ofctl", "show", "unix:/run/openvswitch/br-int.mgmt")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		// " 3(mn0123456789ab): addr:…"; tunnels are called ovn-….
		before, _, ok := strings.Cut(line, "): addr:")
		_, name, _ := strings.Cut(before, "(")
		if ok && name != "br-int" && !strings.HasPrefix(name, "ovn-") {
			lines = append(lines, "switched "+name)
		}
	}
	err = n.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if name := l.Attrs().Name; strings.HasPrefix(name, agentapi.HostVethPrefix) {
				lines = append(lines, "link "+name)
			}
		}
		return err
	})
	for what, dir := range map[string]string{"journal": "attached", "release": "release", "result": "results"} {
		files, readErr := os.ReadDir(n.Path(filepath.Join("/var/lib/cni/ovn-multinet", dir)))
		if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
		for _, f := range files {
			lines = append(lines, what+" "+f.Name())
		}
	}
	return lines, err
}
