package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// largeList is a conflist of a size.
func largeList(letter string, size int) json.RawMessage {
	const text = `{"name":"","plugins":[]}`
	return json.RawMessage(strings.Replace(text, `"name":"`, `"name":"`+strings.Repeat(letter, size-len(text)), 1))
}

// largePlan has n delegates of the conflists, in turn.
func largePlan(n int, lists ...json.RawMessage) *Plan {
	p := &Plan{Interfaces: []Interface{}}
	for i := range n {
		p.Delegates = append(p.Delegates, Delegate{Name: fmt.Sprint("net", i+1), Network: "shop/big", Conflist: lists[i%len(lists)], Position: i})
	}
	return p
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A conflist that a pod names often is in a message, in the journal and in the reader's memory once.
func TestBoundaryPlanHoldsAConflistOnce(t *testing.T) {
	const size = 250 << 10
	p := largePlan(64, largeList("a", size), largeList("b", size))
	p.Delegates[10].Conflist = bytes.Clone(p.Delegates[10].Conflist) // by its text
	p.Delegates[20].Conflist = json.RawMessage(`{"name":"x","plugins":[]}`)
	for name, text := range map[string][]byte{"the plan": mustJSON(t, p), "by value": mustJSON(t, BindRequest{Plan: *p})} {
		t.Attr("boundary.bytes-per-plan", fmt.Sprint(len(text)))
		if len(text) > 2*size+20<<10 {
			t.Errorf("%s has %d bytes, for two conflists of %d", name, len(text), size)
		}
	}
	var got Plan
	if err := json.Unmarshal(mustJSON(t, p), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, p) {
		t.Error("what is read is another plan than was written")
	}
	texts := map[*byte]bool{}
	for _, d := range got.Delegates {
		texts[&d.Conflist[0]] = true
	}
	if len(texts) != 3 {
		t.Errorf("the reader holds %d texts, of three", len(texts))
	}
}

// A plan in which no two delegates share a conflist has the form that older programs read and write.
func TestBoundaryPlansOfOlderPrograms(t *testing.T) {
	type older Plan // without the methods
	distinct := largePlan(2, largeList("a", 100), largeList("b", 100))
	if got, want := mustJSON(t, distinct), mustJSON(t, older(*distinct)); !bytes.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	shared := largePlan(3, largeList("a", 100))
	want := mustJSON(t, older(*shared))
	var got Plan
	if err := json.Unmarshal(want, &got); err != nil || !reflect.DeepEqual(&got, shared) {
		t.Errorf("an older plan is read as %+v, %v", got, err)
	}
	shared.Apart()
	if text := mustJSON(t, shared); !bytes.Equal(text, want) || bytes.Contains(text, []byte("shares")) {
		t.Errorf("for an older plugin %s\nwant %s", text, want)
	}
}

// What an agent says is not trusted: a delegate shares with one that comes before it, or with none.
func TestBoundarySharesIsChecked(t *testing.T) {
	for _, text := range []string{
		`{"delegates":[{"name":"a","shares":0}]}`, `{"delegates":[{"name":"a","conflist":{}},{"name":"a","shares":1}]}`,
		`{"delegates":[{"name":"a","conflist":{}},{"name":"a","shares":-1}]}`, `{"delegates":[{"name":"a","shares":1},{"name":"b","conflist":{}}]}`,
		`{"delegates":[{"name":"a","conflist":{}},{"name":"a","shares":9223372036854775807}]}`,
	} {
		if err := json.Unmarshal([]byte(text), &Plan{}); err == nil || !strings.Contains(err.Error(), "which does not come before it") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Whatever a plan looks like, what is read of it is written and read back the same, and holds no reference.
func FuzzPlanForm(f *testing.F) {
	f.Add([]byte(`{"interfaces":[],"delegates":[{"name":"a","conflist":{"a":1}},{"name":"b","conflist":null,"shares":0},{"name":"c","shares":1}]}`))
	f.Add([]byte(`{"delegates":[{"conflist":null},{"conflist":null},{"shares":0}]}`))
	f.Add([]byte(`{"delegates":[{},{}]}`))
	f.Add(mustMarshal(largePlan(3, largeList("a", 30))))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p, again Plan
		if json.Unmarshal(text, &p) != nil {
			return
		}
		for i, d := range p.Delegates {
			if d.Shares != nil {
				t.Errorf("delegate %d has a reference", i)
			}
		}
		written := mustJSON(t, p)
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if got := mustJSON(t, again); !bytes.Equal(got, written) {
			t.Errorf("%s\nthen %s", written, got)
		}
	})
}

func mustMarshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// A plan that no message takes is refused by its size, in the form that its plugin reads.
func TestBoundaryPlansAreBounded(t *testing.T) {
	const size = 250 << 10
	tests := []struct {
		name  string
		plan  *Plan
		apart bool
		over  bool
	}{
		{"one conflist 64 times", largePlan(64, largeList("a", size)), false, false},
		{"for an older plugin, within its bound", largePlan(12, largeList("a", size)), true, false},
		{"for an older plugin", largePlan(13, largeList("a", size)), true, true},
		{"one that is too large", largePlan(1, largeList("a", MaxPlan)), false, true},
		{"capabilities that are", &Plan{Delegates: []Delegate{{Capabilities: map[string]json.RawMessage{"x": largeList("a", MaxPlan)}}}}, false, true},
		{"what device plugins say", &Plan{Delegates: []Delegate{{Device: &Device{Info: largeList("a", MaxPlan)}}}}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.apart {
				tt.plan.Apart()
			}
			text := mustJSON(t, tt.plan)
			err := tt.plan.CheckSize()
			if !tt.over {
				if err != nil || len(text) > MaxPlan {
					t.Errorf("%d bytes: %v", len(text), err)
				}
				return
			}
			code, msg, details := conf.Describe(err)
			var n int
			if _, scanErr := fmt.Sscanf(msg, "the plan for the pod's networks: %d bytes are more than 3145728", &n); scanErr != nil || code != conf.CodeInvalidConfig || details == "" {
				t.Fatalf("%d %s (%s): %v", code, msg, details, scanErr)
			}
			if n <= MaxPlan || n < len(text)-1000 || n > len(text)+1000 {
				t.Errorf("it says %d bytes of a text of %d", n, len(text))
			}
		})
	}
}

// A bind and the agent's view of the journal need no configurations.
func TestBoundaryOutline(t *testing.T) {
	p := largePlan(3, largeList("a", 100<<10))
	p.Delegates[1].Device = &Device{Resource: "a.example/vf", ID: "d1", Info: largeList("i", 60<<10)}
	p.Delegates[2].Capabilities, p.Delegates[2].Args = map[string]json.RawMessage{"mac": []byte(`"x"`)}, [][2]string{{"MAC", "x"}}
	p.Delegates[2].Warning = "words"
	whole := mustJSON(t, p)
	outline := p.Outline()
	if n := len(mustJSON(t, outline)); n > 1000 {
		t.Errorf("the outline has %d bytes", n)
	}
	if !bytes.Equal(mustJSON(t, p), whole) {
		t.Error("the plan changed")
	}
	for i, d := range outline.Delegates {
		if from := p.Delegates[i]; d.Name != from.Name || d.Network != from.Network || d.Position != from.Position || d.Warning != from.Warning || (d.Device == nil) != (from.Device == nil) {
			t.Errorf("delegate %d became %+v", i, d)
		}
	}
}

// A message over the bound is not sent, and the error says so: nobody is asked whether the agent is running.
func TestBoundaryMessagesOverTheBound(t *testing.T) {
	var sent bytes.Buffer
	err := Write(&sent, Request{Op: strings.Repeat("x", maxMessage)})
	if !errors.Is(err, ErrTooLarge) || sent.Len() != 0 || err.Error() != "message: 4194338 bytes are more than 4194304" {
		t.Errorf("%v, and %d bytes were sent", err, sent.Len())
	}
	if err := Write(&sent, Request{Op: "x"}); err != nil || sent.Len() == 0 {
		t.Errorf("a short one: %v", err)
	}
	// An agent of another version, whose answers have no bound.
	long := append(mustJSON(t, Response{Version: Version, Body: mustJSON(t, strings.Repeat("x", maxMessage))}), '\n')
	socket := socketPath(t)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var requests atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			for reader := NewReader(conn); reader.Read(&Request{}) == nil; {
				requests.Add(1)
				_, _ = conn.Write(long)
			}
			_ = conn.Close()
		}
	}()
	for name, body := range map[string]any{"the request": strings.Repeat("x", maxMessage), "the answer": "short"} {
		err := client(t, socket).Call(withTimeout(t), OpPlan, body, nil)
		code, msg, details := conf.Describe(err)
		if code != conf.CodeInvalidConfig || !strings.Contains(msg, "4194304") || strings.Contains(msg+details, "running") || details == "" {
			t.Errorf("%s: %d %s (%s)", name, code, msg, details)
		}
		if clean := errors.Is(err, ErrClean); clean != (name == "the request") {
			t.Errorf("%s: nothing was made: %v", name, clean)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests were sent, want one: neither gets shorter", n)
	}
}
