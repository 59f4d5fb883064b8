package sriov

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// server answers in kubelet's place: the real protocol, but the devices are the test's.
type server struct {
	podresources.UnimplementedPodResourcesListerServer
	socket string

	mu    sync.Mutex
	pods  []*podresources.PodResources
	asked int
	// refuse, if it is set, is asked with the number of the question; an error is the answer.
	refuse func(ctx context.Context, question int) error
}

func (s *server) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.refuse != nil {
		if err := s.refuse(ctx, s.asked); err != nil {
			return nil, err
		}
	}
	return &podresources.ListPodResourcesResponse{PodResources: s.pods}, nil
}

// questions is how often it was asked.
func (s *server) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// devices asks it as the agent does, for the pod shop/web.
func (s *server) devices(ctx context.Context) (map[string][]string, error) {
	return (&Kubelet{Socket: s.socket}).Devices(ctx, "shop", "web")
}

// shortDir is t.TempDir with a path that a unix socket bears (108 bytes).
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sriov-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listen(t *testing.T) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(shortDir(t), "kubelet.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serve(t *testing.T, l net.Listener, pods ...*podresources.PodResources) *server {
	t.Helper()
	s, g := &server{socket: l.Addr().String(), pods: pods}, grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(g, s)
	var done sync.WaitGroup
	done.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); done.Wait() })
	return s
}

// pod is one whose containers have devices, each written "resource: id id".
func pod(namespace, name string, containers ...[]string) *podresources.PodResources {
	p := &podresources.PodResources{Namespace: namespace, Name: name}
	for i, lines := range containers {
		c := &podresources.ContainerResources{Name: fmt.Sprint("c", i)}
		for _, line := range lines {
			resource, ids, _ := strings.Cut(line, ": ")
			c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: strings.Fields(ids)})
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

// A pod has the devices of all its containers, each once, in an order that is not kubelet's.
func TestDevicesOfAPod(t *testing.T) {
	mine := pod("shop", "web", []string{"a.example/vf: d2 d1"})
	tests := []struct {
		name string
		pods []*podresources.PodResources
		want map[string][]string
	}{
		{"nobody runs", nil, map[string][]string{}},
		{"it is not there", []*podresources.PodResources{pod("shop", "web-1", []string{"a.example/vf: d1"})}, map[string][]string{}},
		{"without devices", []*podresources.PodResources{pod("shop", "web", nil, nil)}, map[string][]string{}},
		{"sorted", []*podresources.PodResources{mine}, map[string][]string{"a.example/vf": {"d1", "d2"}}},
		{"sorted as strings", []*podresources.PodResources{pod("shop", "web", []string{"a.example/vf: d9 d10 D1"})}, map[string][]string{"a.example/vf": {"D1", "d10", "d9"}}},
		{"of two containers", []*podresources.PodResources{pod("shop", "web", []string{"a.example/vf: d3"}, []string{"a.example/vf: d1"}, []string{"a.example/vf: d2"})},
			map[string][]string{"a.example/vf": {"d1", "d2", "d3"}}},
		{"listed by NUMA nodes", []*podresources.PodResources{pod("shop", "web", []string{"a.example/vf: d3 d2", "a.example/vf: d1"})}, map[string][]string{"a.example/vf": {"d1", "d2", "d3"}}},
		{"one device in two containers", []*podresources.PodResources{pod("shop", "web", []string{"a.example/vf: d2 d1"}, []string{"a.example/vf: d2"})},
			map[string][]string{"a.example/vf": {"d1", "d2"}}},
		{"two resources", []*podresources.PodResources{pod("shop", "web", []string{"a.example/vf: d1", "a.example/vg: d0"}, []string{"a.example/vg: d1"})},
			map[string][]string{"a.example/vf": {"d1"}, "a.example/vg": {"d0", "d1"}}},
		{"beside others", []*podresources.PodResources{pod("depot", "web", []string{"a.example/vf: x1"}), mine, pod("shop", "web2", []string{"a.example/vf: x2"}), pod("", "web", []string{"a.example/vf: x3"})},
			map[string][]string{"a.example/vf": {"d1", "d2"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, listen(t), tt.pods...)
			got, err := s.devices(t.Context())
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
			if n := s.questions(); n != 1 {
				t.Errorf("kubelet was asked %d times", n)
			}
		})
	}
}

// errLimited is how kubelet refuses the question that is one too many.
var errLimited = status.Error(codes.ResourceExhausted, "rejected by rate limit")

// Kubelet bounds how often it is asked, by all who ask: it is asked again.
func TestKubeletThatIsAskedTooOften(t *testing.T) {
	s := serve(t, listen(t), pod("shop", "web", []string{"a.example/vf: d1"}))
	s.refuse = func(_ context.Context, question int) error {
		if question <= 4 {
			return errLimited
		}
		return nil
	}
	got, err := s.devices(t.Context())
	if want := map[string][]string{"a.example/vf": {"d1"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if n := s.questions(); n != 5 {
		t.Errorf("it was asked %d times, want the four that it refused and one", n)
	}
}

// It is asked again only as long as somebody waits for the answer, and what it said is why there is none.
func TestKubeletIsNotAskedForNobody(t *testing.T) {
	s := serve(t, listen(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.refuse = func(_ context.Context, question int) error {
		if question == 2 {
			cancel()
		}
		return errLimited
	}
	got, err := s.devices(ctx)
	wantNoAnswer(t, s, got, err, "rejected by rate limit")
	if n := s.questions(); n != 2 {
		t.Errorf("it was asked %d times, want 2", n)
	}
}

func wantNoAnswer(t *testing.T, s *server, got map[string][]string, err error, want string) {
	t.Helper()
	if got != nil {
		t.Errorf("got the devices %v", got)
	}
	wantCoded(t, err, conf.CodeTryAgain, "which devices the pod has: kubelet's pod-resources API at "+s.socket+": "+want)
}

func wantCoded(t *testing.T, err error, code uint, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %d %s", code, want)
		return
	}
	got, msg, details := conf.Describe(err)
	if got != code || msg != want || details == "" {
		t.Errorf("got  %d %s (%s)\nwant %d %s", got, msg, details, code, want)
	}
}

// What else kubelet says is the answer: the pod's ADD fails, and kubelet tries that again.
func TestErrorsOfKubelet(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"its own trouble", status.Error(codes.Internal, "no checkpoint"), "no checkpoint"},
		{"it does not serve the API", status.Error(codes.Unimplemented, "unknown service v1.PodResourcesLister"), "unknown service v1.PodResourcesLister"},
		{"it is on its way out", status.Error(codes.Unavailable, "shutting down"), "shutting down"},
		{"an error without a code", errors.New("oh no"), "oh no"},
		{"an error without words", status.Error(codes.Internal, ""), "rpc error: code = Internal desc ="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, listen(t), pod("shop", "web", []string{"a.example/vf: d1"}))
			s.refuse = func(context.Context, int) error { return tt.err }
			got, err := s.devices(t.Context())
			wantNoAnswer(t, s, got, err, tt.want)
			if n := s.questions(); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// What it says in the end is the reason, not what it said before.
func TestErrorAfterARefusal(t *testing.T) {
	s := serve(t, listen(t))
	s.refuse = func(_ context.Context, question int) error {
		if question == 1 {
			return errLimited
		}
		return status.Error(codes.Internal, "no checkpoint")
	}
	got, err := s.devices(t.Context())
	wantNoAnswer(t, s, got, err, "no checkpoint")
	if n := s.questions(); n != 2 {
		t.Errorf("it was asked %d times, want 2", n)
	}
}

// A node without kubelet's socket: who asks hears so when their patience is over.
func TestNoKubelet(t *testing.T) {
	s := &server{socket: filepath.Join(shortDir(t), "kubelet.sock")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := s.devices(ctx)
	wantNoAnswer(t, s, got, err, "context canceled")
}

// No question lasts for ever, however patient the asker is.
func TestAQuestionHasItsTime(t *testing.T) {
	s := serve(t, listen(t))
	var left time.Duration
	s.refuse = func(ctx context.Context, _ int) error {
		if until, bounded := ctx.Deadline(); bounded {
			left = time.Until(until)
		}
		return nil
	}
	if _, err := s.devices(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left <= 0 || left > askTimeout {
		t.Errorf("kubelet was given %v for its answer, want some time up to %v", left, askTimeout)
	}
}

// dying is the socket of a kubelet that goes down: its first connections end before anything is said.
type dying struct {
	net.Listener
	deaths int
}

func (d *dying) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil || d.deaths == 0 {
			return conn, err
		}
		d.deaths--
		_ = conn.Close()
	}
}

// A kubelet that is being started again is waited for.
func TestKubeletThatComesBack(t *testing.T) {
	s := serve(t, &dying{listen(t), 1}, pod("shop", "web", []string{"a.example/vf: d1"}))
	got, err := s.devices(t.Context())
	if want := map[string][]string{"a.example/vf": {"d1"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// A node of many pods has an answer that is larger than gRPC takes by default, which is 4 MiB.
func TestLargeAnswer(t *testing.T) {
	var pods []*podresources.PodResources
	for i := range 300 { // 100 names of 200 bytes each: 6 MB
		pods = append(pods, pod("shop", fmt.Sprint("other-", i), []string{"a.example/vf: " + strings.Repeat(fmt.Sprintf("%0200d ", i), 100)}))
	}
	s := serve(t, listen(t), append(pods, pod("shop", "web", []string{"a.example/vf: d1"}))...)
	got, err := s.devices(t.Context())
	if want := map[string][]string{"a.example/vf": {"d1"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if n := s.questions(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// counting tells when its connections end.
type counting struct {
	net.Listener
	ended chan struct{}
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &counted{Conn: conn, end: sync.OnceFunc(func() { c.ended <- struct{}{} })}, nil
}

type counted struct {
	net.Conn
	end func()
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.end()
	}
	return n, err
}

// The agent keeps no connection to kubelet, whether it got an answer or not.
func TestNoConnectionIsLeft(t *testing.T) {
	l := &counting{listen(t), make(chan struct{}, 8)}
	s := serve(t, l)
	s.refuse = func(_ context.Context, question int) error {
		if question == 2 {
			return status.Error(codes.Internal, "no checkpoint")
		}
		return nil
	}
	for question := 1; question <= 2; question++ {
		if _, err := s.devices(t.Context()); (err != nil) != (question == 2) {
			t.Fatalf("question %d: %v", question, err)
		}
		select {
		case <-l.ended:
		case <-time.After(2 * time.Minute):
			t.Fatalf("the connection of question %d is left", question)
		}
	}
}
