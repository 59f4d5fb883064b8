package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// largeConfig is a configuration of another plugin with as many bytes; letter makes it another one.
func largeConfig(size int, letter string) string {
	const text = `{"type":"bridge","name":""}`
	return strings.Replace(text, `"name":"`, `"name":"`+strings.Repeat(letter, size-len(text)), 1)
}

// nadServer is an API server of many NADs. It speaks HTTP to the real clients, for it is their decoding that takes memory; it
// answers a list, and a watch that says nothing.
type nadServer struct {
	nads int
	size int // of a spec.config
}

func (s *nadServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	isNADs := strings.HasSuffix(r.URL.Path, "/network-attachment-definitions")
	switch {
	case r.URL.Query().Get("watch") != "":
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	case isNADs:
		fmt.Fprint(rw, `{"kind":"NetworkAttachmentDefinitionList","apiVersion":"k8s.cni.cncf.io/v1","metadata":{"resourceVersion":"7"},"items":[`)
		for i := range s.nads {
			if i > 0 {
				fmt.Fprint(rw, ",")
			}
			_ = json.NewEncoder(rw).Encode(s.nad(i))
		}
		fmt.Fprint(rw, "]}")
	default:
		fmt.Fprint(rw, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}
}

func (s *nadServer) nad(i int) *nadv1.NetworkAttachmentDefinition {
	n := apiNAD(fmt.Sprint("n", i), largeConfig(s.size, "x"))
	n.UID, n.ResourceVersion = "u1", "7"
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", s.size/10)}}
	n.Annotations = map[string]string{"example.com/x": strings.Repeat("a", s.size/10), ours: strings.Repeat("s", s.size/10)}
	return n
}

// kept is how many bytes of memory a controller's source takes for the NADs of the server.
func (s *nadServer) kept(t *testing.T) uint64 {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nads, err := nadclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	k, err := NewKube(core, nads, "", Changes{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	eventually(t, fmt.Sprint(s.nads), func() string { return fmt.Sprint(len(k.nads.List())) })
	after := heap()
	if d, err := k.NAD(background, "shop", "n0"); err != nil || d.Config.Size() != s.size {
		t.Errorf("%+v, %v", d, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	server.CloseClientConnections()
	return after - min(before, after)
}

// heap is what is in use after two collections: what has a finalizer goes with the second.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The limit of agents and controllers is 256 Mi. What tenants write into NADs must not fill it: a hundred large NADs take about
// what a hundred small ones do.
func TestBoundaryLargeNADsAreNotKept(t *testing.T) {
	const nads, large = 100, 1_200_000
	small := (&nadServer{nads, 100}).kept(t)
	got := (&nadServer{nads, large}).kept(t)
	t.Attr("boundary.bytes-kept-per-small-nad", fmt.Sprint(small/nads))
	t.Attr("boundary.bytes-kept-per-large-nad", fmt.Sprint(got/nads))
	if limit := uint64(nads * 16 << 10); got > limit {
		t.Errorf("%d NADs of %d bytes take %d bytes (small ones %d), want at most %d", nads, large, got, small, limit)
	}
}

// A list is read object by object: what is in memory at once is one object, not what the API server sends.
func TestBoundaryListsAreReadObjectByObject(t *testing.T) {
	const objects, size = 200, 100 << 10
	text, writer := io.Pipe()
	written := make(chan int, 1)
	go func() {
		n := 0
		say := func(s string) {
			wrote, _ := io.WriteString(writer, s)
			n += wrote
		}
		say(`{"metadata":{"resourceVersion":"9","continue":"more"},"items":[`)
		for i := range objects {
			say(strings.Repeat(",", min(i, 1)) + fmt.Sprintf(`{"metadata":{"name":"n%d"},"spec":{"config":"%s"}}`, i, strings.Repeat("x", size)))
		}
		say("]}")
		_ = writer.Close()
		written <- n
	}()
	counted := &countingReader{Reader: text}
	seen, most := 0, 0
	meta, err := decodeList(counted, func(n *nadv1.NetworkAttachmentDefinition) {
		if n.Name != fmt.Sprint("n", seen) || len(n.Spec.Config) != size {
			t.Errorf("object %d is %s with %d bytes", seen, n.Name, len(n.Spec.Config))
		}
		seen++
		most = max(most, counted.n-seen*size) // what was read and not handed over, and the texts around objects
	})
	if err != nil || seen != objects || meta.Continue != "more" || meta.ResourceVersion != "9" {
		t.Errorf("%d objects, %+v, %v", seen, meta, err)
	}
	t.Attr("boundary.bytes-read-ahead", fmt.Sprint(most))
	if most > 4*size {
		t.Errorf("%d bytes were read ahead of the object that was handed over; the list has %d", most, <-written)
	}
}

type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

// A part of a list is no list: what is missing would look as if gone.
func TestBoundaryListsThatEndEarly(t *testing.T) {
	const list = `{"kind":"List","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`
	count := func(text string) (n int, err error) {
		_, err = decodeList(strings.NewReader(text), func(*corev1.Pod) { n++ })
		return n, err
	}
	if n, err := count(list); n != 2 || err != nil {
		t.Errorf("the whole list: %d, %v", n, err)
	}
	if n, err := count(`{"items":null,"metadata":{}}`); n != 0 || err != nil {
		t.Errorf("an empty list: %d, %v", n, err)
	}
	for i := range len(list) - 1 {
		if _, err := count(list[:i]); err == nil {
			t.Errorf("%s is a list", list[:i])
		} else if errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", list[:i], err)
		}
	}
	for _, text := range []string{"[]", `{"items":{}}`, `{"items":[7]}`, `{"items":[]]`, "x"} {
		if _, err := count(text); err == nil {
			t.Errorf("%s is a list", text)
		}
	}
}

// An edit of a configuration that is not kept is told as any other.
func TestBoundaryEditsOfWhatIsNotKeptAreTold(t *testing.T) {
	c := newCluster(t, "", apiNAD("big", largeConfig(5000, "x")))
	c.run(t, 0, 1)
	eventually(t, "shop/big", c.told.take)
	api := c.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("shop")
	for _, config := range []string{largeConfig(5000, "y"), largeConfig(5001, "y"), `{"type":"ovn-multinet"}`, `{"type":"ovn-multinet","x":"` + strings.Repeat("x", 20000) + `"}`} {
		if _, err := api.Update(background, apiNAD("big", config), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "shop/big", c.told.take)
	}
	const want = "network shop/big: spec.config: 20030 bytes are more than 16384"
	d, err := c.NAD(background, "shop", "big")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Network(); errorText(err) != want || !conf.HasCode(err, conf.CodeInvalidConfig) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The text that is not kept is asked for.
func TestBoundaryLiveNADHasTheText(t *testing.T) {
	config := largeConfig(5000, "x")
	c := newCluster(t, "node-1", apiNAD("big", config), apiNAD("huge", largeConfig(300<<10, "x")))
	c.run(t, 0, 2)
	known, err := c.NAD(background, "shop", "big")
	if err != nil || !known.Config.Omitted() || known.Config.Size() != 5000 || c.requests() != "" {
		t.Errorf("known %+v, %v; requests %q", known, err, c.requests())
	}
	live, err := c.LiveNAD(background, "shop", "big")
	if err != nil || live.Config.Text() != config || c.requests() != "get network-attachment-definitions shop/big" {
		t.Errorf("%d bytes, %v; requests %q", live.Config.Size(), err, c.requests())
	}
	if live, err = c.LiveNAD(background, "shop", "huge"); err != nil || !live.Config.Omitted() || live.Config.Size() != 300<<10 {
		t.Errorf("one over the bound: %d bytes of %d, %v", len(live.Config.Text()), live.Config.Size(), err)
	}
	if _, err := c.LiveNAD(background, "shop", "none"); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// A list of finalizers that is too long to be kept is read before it is written: those of others stay.
func TestBoundaryManyFinalizers(t *testing.T) {
	var others []string
	for i := range 40 {
		others = append(others, fmt.Sprintf("example.com/%s-%d", strings.Repeat("f", 40), i))
	}
	for name, held := range map[string]bool{"to be held": true, "to be let go": false} {
		t.Run(name, func(t *testing.T) {
			now, want := append(slices.Clone(others), ours), others
			if held {
				now, want = want, now
			}
			c := newCluster(t, "", heldNAD("blue", now...))
			c.run(t, 0, 1)
			if kept := c.cached("shop", "blue"); len(kept.finalizers) != 0 {
				t.Errorf("%d finalizers are kept", len(kept.finalizers))
			}
			if err := c.SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: "blue"}, "{}", held); err != nil {
				t.Fatal(err)
			}
			if got := c.requests(); got != "get network-attachment-definitions shop/blue, patch network-attachment-definitions shop/blue" {
				t.Errorf("requests %q", got)
			}
			after, err := c.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("shop").Get(background, "blue", metav1.GetOptions{})
			if err != nil || !slices.Equal(after.Finalizers, want) {
				t.Errorf("finalizers %q, %v", after.Finalizers, err)
			}
		})
	}
}

// largePod has as much of everything as Kubernetes lets a tenant write into annotations.
func largePod() *corev1.Pod {
	huge := strings.Repeat("x", 60<<10)
	return apiPod("web-0", "u1", map[string]string{
		"k8s.v1.cni.cncf.io/networks": huge + huge, "k8s.v1.cni.cncf.io/network-status": `[{"name":"` + huge + `"},{"name":"b"}]`,
		"v1.multus-cni.io/default-network": huge, "ovn-multinet/x": huge, "kubernetes.io/config.mirror": huge, "example.com/x": huge,
	})
}

// What is kept of a pod has the answers of the whole pod.
func TestBoundaryLargePodsAreNotKept(t *testing.T) {
	c := newCluster(t, "node-1", largePod())
	c.run(t, 1, 0)
	folder := newFolder(t)
	text, err := json.Marshal(largePod())
	if err != nil {
		t.Fatal(err)
	}
	folder.write("pod.yaml", strings.Replace(string(text), "{", `{"kind":"Pod",`, 1))
	m := folder.manifests(nil)
	for name, get := range map[string]func() (*netmodel.Pod, error){
		"Kubernetes": func() (*netmodel.Pod, error) { return c.Pod(background, "shop", "web-0", "u1") },
		"a folder":   func() (*netmodel.Pod, error) { return m.Pod(background, "shop", "web-0", "u1") },
	} {
		p, err := get()
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for key, value := range p.Annotations {
			size += len(key) + len(value)
		}
		t.Attr("boundary.bytes-kept-of-a-pod", fmt.Sprint(size))
		if size > 400 || !nad.HasAttachments(p.Annotations[nad.StatusAnnotation]) {
			t.Errorf("%s: %d bytes of annotations are kept: %.400q", name, size, fmt.Sprint(p.Annotations))
		}
		// Multus' annotation is what is refused first.
		delete(p.Annotations, "v1.multus-cni.io/default-network")
		delete(p.Annotations, "ovn-multinet/x")
		const want = "annotation k8s.v1.cni.cncf.io/networks: 122880 bytes are more than 65536"
		if _, err := nad.ParseRequests(conf.NetworkAnnotations(p.Annotations), "shop", "eth0"); errorText(err) != want {
			t.Errorf("%s: refused with %v, want %s", name, err, want)
		}
	}
}

// The folder of manifests has the same bounds. Its files have the texts.
func TestBoundaryFolderKeepsNoLargeNAD(t *testing.T) {
	f, told := newFolder(t), &names{}
	big := largeConfig(200<<10, "x")
	f.write("nads.yaml", nadYAML("big", big)+"---\n"+nadYAML("ovn", `{"type":"ovn-multinet","subnets":"`+strings.Repeat("x", 20000)+`"}`)+"---\n"+nadYAML("small", `{"type":"bridge"}`))
	m := f.manifests(told.changed)
	if got := told.take(); got != "shop/big shop/ovn shop/small" {
		t.Errorf("told %q", got)
	}
	for name, want := range map[string]int{"big": 0, "ovn": 0, "small": len(`{"type":"bridge"}`)} {
		if d, err := m.NAD(background, "shop", name); err != nil || len(d.Config.Text()) != want || d.Config.Omitted() != (want == 0) {
			t.Errorf("%s: %d bytes are kept, %+v, %v", name, len(d.Config.Text()), d.Config, err)
		}
	}
	if live, err := m.LiveNAD(background, "shop", "big"); err != nil || live.Config.Text() != big {
		t.Errorf("%v", err)
	}
	if _, err := m.LiveNAD(background, "shop", "none"); !errors.Is(err, netmodel.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	other := largeConfig(200<<10, "y")
	f.write("nads.yaml", nadYAML("big", other))
	if live, err := m.LiveNAD(background, "shop", "big"); err != nil || live.Config.Text() != other {
		t.Errorf("after an edit: %v", err)
	}
	if got := told.take(); got != "shop/big shop/ovn shop/small" {
		t.Errorf("told %q after an edit of a text that is not kept", got)
	}
	if err := os.WriteFile(filepath.Join(f.dir, "nads.yaml"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.LiveNAD(background, "shop", "big"); err == nil || !strings.Contains(err.Error(), "nads.yaml") {
		t.Errorf("a file that broke: %v", err)
	}
}

// A NAD is found by its name while others scan the folder. Each scan parses a file again whose time is in the future.
func TestLiveNADWhileOthersScan(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	future := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(f.dir, "a.yaml"), future, future); err != nil {
		t.Fatal(err)
	}
	m := f.manifests(nil)
	start(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := m.scan(); err != nil {
				return err
			}
		}
		return nil
	})
	for range 2000 {
		if d, err := m.LiveNAD(background, "shop", "blue"); err != nil || d.Config.Text() != "1" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
}

// The file is renamed between the scan and the reading; the scan tells of the edit after it has read the file.
func TestLiveNADFollowsARenamedFile(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", nadYAML("blue", "1"))
	moves := map[string]string{}
	m := f.manifests(func(string, string) {
		for from, to := range moves {
			if err := os.Rename(filepath.Join(f.dir, from), filepath.Join(f.dir, to)); err != nil {
				t.Error(err)
			}
		}
		clear(moves)
	})
	for _, step := range []struct{ from, to, config, want string }{
		{"a.yaml", "b.yaml", "2", "shop/blue: 2"},
		{"b.yaml", "b.yaml~", "3", f.absent("not found", "shop/blue", "not found")},
	} {
		f.write(step.from, nadYAML("blue", step.config))
		moves[step.from] = step.to
		if got := showNAD(m.LiveNAD(background, "shop", "blue")); got != step.want {
			t.Errorf("%s became %s: got %s, want %s", step.from, step.to, got, step.want)
		}
		if len(moves) > 0 {
			t.Errorf("no scan told of the edit of %s", step.from)
		}
	}
}

// An Event says in one line what Kubernetes takes.
func TestBoundaryEventsAreShort(t *testing.T) {
	long := strings.Repeat("x\n", 5000)
	c := newCluster(t, "node-1", heldNAD("blue"))
	c.run(t, 0, 1)
	c.Event(&netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, Warning, "Reason", long)
	eventually(t, "1", func() string { return fmt.Sprint(strings.Count(c.created(), "Reason")) })
	said := c.created()
	c.clear()
	c.NetworkEvent(&netmodel.NAD{Namespace: "shop", Name: "blue"}, true, "Reason", long)
	eventually(t, "1", func() string { return fmt.Sprint(strings.Count(c.created(), "Reason")) })
	for _, event := range []string{said, c.created()} {
		if len(event) > conf.MaxReason+200 || strings.Contains(event, "\n") {
			t.Errorf("an Event of %d bytes: %.80q", len(event), event)
		}
	}
}

// Pods that start at once may each have to be asked for: what is read at once has a bound too. The real clients speak to a server
// over HTTP, for the fake ones answer one request at a time.
func TestBoundaryFewObjectsAreReadAtOnce(t *testing.T) {
	const callers = 30
	entered, gate := make(chan string, callers), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		entered <- r.URL.Path
		<-gate
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"metadata":{"namespace":"shop","name":"x","uid":"u1"}}`)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nads, err := nadclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKube(core, nads, "node-1", Changes{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	errs, begun := make(chan error, callers), make(chan struct{}, callers)
	for i := range callers {
		go func() {
			begun <- struct{}{}
			var err error
			if i%2 == 0 {
				_, err = k.LivePod(background, "shop", "x")
			} else {
				_, err = k.LiveNAD(background, "shop", "x")
			}
			errs <- err
		}()
	}
	for range callers {
		<-begun
	}
	for range maxGets {
		<-entered
	}
	if k.gets.TryAcquire(1) {
		t.Error("a further object would be read")
	}
	if _, err := k.LivePod(ended(), "shop", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("one whose time is over: %v", err)
	}
	if more := len(entered); more != 0 {
		t.Errorf("%d objects are read at once, want %d", maxGets+more, maxGets)
	}
	close(gate)
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
