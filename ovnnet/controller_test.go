package ovnnet_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// running is a controller at work.
type running struct {
	*world
	*ovnnet.Controller
	nads *nads
	log  *buffer
	stop func()
}

// run starts a controller on a database and a source that may hold something already. It is stopped with the test.
func run(t *testing.T, w *world, source *nads) *running {
	t.Helper()
	log := &buffer{}
	c := ovnnet.NewController(w.networks, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, source) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return &running{world: w, Controller: c, nads: source, log: log, stop: stop}
}

// change sets a NAD ("": removes it) and says so.
func (r *running) change(id, config string) {
	r.nads.set(id, config)
	namespace, name, _ := strings.Cut(id, "/")
	r.Changed(namespace, name)
}

func (r *running) wantNames(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() string { return r.names(t) })
}

// wantLine waits for a line of the log with all the words.
func (r *running) wantLine(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, "there", func() string {
		for line := range strings.Lines(r.log.String()) {
			missing := false
			for _, word := range words {
				missing = missing || !strings.Contains(line, word)
			}
			if !missing {
				return "there"
			}
		}
		return "no line with " + strings.Join(words, ", ") + " in:\n" + r.log.String()
	})
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestControllerFollowsTheNADs(t *testing.T) {
	r := run(t, newWorld(t), &nads{})
	r.change("shop/blue", spec(`"subnets":"10.1.0.0/24"`))
	r.change("infra/blue", spec(`"subnets":"10.1.0.0/24"`))
	r.wantNames(t, "infra/blue shop/blue")

	r.change("shop/blue", spec(`"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.128/25"`))
	eventually(t, "10.1.0.1 10.1.0.2..10.1.0.127", func() string {
		return r.switches(t)[blueKey]["other_config"].(map[string]string)["exclude_ips"]
	})

	r.change("infra/blue", "")
	r.wantNames(t, "shop/blue")
}

// What is not an OVN network of ours has no switch, whether it was one before or not.
func TestControllerIgnoresOtherTypes(t *testing.T) {
	for name, config := range map[string]string{
		"another plugin's": `{"type":"bridge"}`, "a conflist": `{"plugins":[]}`, "no type": `{}`, "null": "null", "no JSON": "x",
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, newWorld(t), &nads{})
			r.change("shop/blue", spec(""))
			r.wantNames(t, "shop/blue")
			r.change("shop/blue", config)
			r.wantNames(t, "")
			r.change("shop/red", config)
			r.change("shop/green", spec("")) // worked off after red
			r.wantNames(t, "shop/green")
		})
	}
}

func TestControllerRefusesInvalidNetworks(t *testing.T) {
	r := run(t, newWorld(t), &nads{})
	r.change("shop/red", spec(`"subnet":"10.1.0.0/24"`))
	r.wantLine(t, "level=ERROR", "network=shop/red", `unknown key \"subnet\", did you mean \"subnets\"?`)
	if got := r.names(t); got != "" {
		t.Errorf("switches %q", got)
	}
	r.change("shop/red", spec(`"subnets":"10.1.0.0/24"`))
	r.wantNames(t, "shop/red")

	// A switch that pods may be on stays as it was when its NAD is spoilt.
	before := r.switches(t)[ovndb.SwitchKey("shop/red")]["other_config"].(map[string]string)["subnet"]
	r.change("shop/red", spec(`"subnets":"10.2.0.0"`))
	r.wantLine(t, "level=ERROR", "network=shop/red", `is not a network like`)
	if row := r.switches(t)[ovndb.SwitchKey("shop/red")]; row == nil || row["other_config"].(map[string]string)["subnet"] != before {
		t.Errorf("row %v", row)
	}
}

// NADs that went, came or changed while no controller ran.
func TestControllerCatchesUp(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "gone", ""))
	ensure(t, w.networks, network(t, "changed", `"subnets":"10.1.0.0/24"`))
	ensure(t, w.networks, network(t, "same", ""))
	w.put(t, "11111111-0000-4000-8000-000000000001", "a-foreign-one", nil)
	source := &nads{}
	source.set("shop/changed", spec(`"subnets":"10.2.0.0/24"`))
	source.set("shop/same", spec(""))
	r := run(t, w, source)
	r.wantNames(t, "a-foreign-one shop/changed shop/same")
	eventually(t, "10.2.0.0/24", func() string {
		return r.switches(t)[ovndb.SwitchKey("shop/changed")]["other_config"].(map[string]string)["subnet"]
	})
}

// Changed may be called before Run, as an informer does that is faster.
func TestControllerIsToldBeforeItRuns(t *testing.T) {
	w := newWorld(t)
	source := &nads{}
	source.set("shop/blue", spec(""))
	c := ovnnet.NewController(w.networks, slog.New(slog.DiscardHandler))
	c.Changed("shop", "blue")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, source) }()
	eventually(t, "shop/blue", func() string { return w.names(t) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The switch of a network that is gone stays until its last port goes.
func TestControllerWaitsForPorts(t *testing.T) {
	r := run(t, newWorld(t), &nads{})
	r.change("shop/blue", spec(""))
	r.wantNames(t, "shop/blue")
	r.addPort(t, blueKey, "shop/web-0/net1")
	r.change("shop/blue", "")
	r.wantLine(t, "level=INFO", "its switch stays until its ports are gone", "network=shop/blue")
	if r.names(t) != "shop/blue" || len(r.Dump(t, "Logical_Switch_Port")) != 1 {
		t.Error("the switch or its port is lost")
	}
	r.dropPorts(t, blueKey)
	r.wantNames(t, "")
}

// A source that does not answer removes nothing, and is asked again.
func TestControllerTriesAgain(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", ""))
	source := &nads{}
	source.fail("shop/blue", errors.New("connection refused"))
	r := run(t, w, source)
	r.wantLine(t, "level=WARN", "network=shop/blue", "connection refused")
	if got := r.names(t); got != "shop/blue" {
		t.Errorf("switches %q", got)
	}
	r.nads.fail("", nil)
	r.wantNames(t, "")
}

// The next leader removes what went while there was none.
func TestControllerEnds(t *testing.T) {
	w := newWorld(t)
	first := run(t, w, &nads{})
	first.change("shop/blue", spec(""))
	first.wantNames(t, "shop/blue")
	first.stop()
	source := &nads{}
	source.set("shop/red", spec(""))
	second := run(t, w, source)
	second.wantNames(t, "")
	second.Changed("shop", "red")
	second.wantNames(t, "shop/red")
}
