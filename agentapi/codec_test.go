package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// full is a plan with everything in it.
func full() Plan {
	return Plan{ChecksumOff: true, Delegates: []Delegate{
		{Name: "net3", Network: "shop/ext", Conflist: json.RawMessage(`{"cniVersion":"1.0.0","name":"ext","plugins":[{"type":"bridge","vlan":12345678901234567890}]}`),
			Capabilities: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`)}, Args: [][2]string{{"IP", "10.9.0.7/24"}}, Position: 1, Warning: "w"},
		{Name: "net4", Network: "shop/ext", Conflist: json.RawMessage(`{"plugins":[]}`), Position: 3},
	}, Default: &Default{Interface: "net3", Gateways: []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")},
		Keep: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	}, Routes: []Route{
		{Route: conf.Route{Dst: netip.MustParsePrefix("198.51.100.0/24"), GW: netip.MustParseAddr("10.1.0.9")}, Interface: "net1"},
		{Route: conf.Route{Dst: netip.MustParsePrefix("2001:db8::/32"), GW: netip.MustParseAddr("fe80::1")}, Interface: "eth0"},
	}, Interfaces: []Interface{
		{Name: "net1", Network: "shop/blue", MAC: "0a:58:0a:01:00:07", MTU: 1400,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24"), netip.MustParsePrefix("fd01::7/64")},
			Routes:    []conf.Route{{Dst: netip.MustParsePrefix("192.0.2.0/24"), GW: netip.MustParseAddr("10.1.0.1")}},
			Port:      Port{Name: "shop/web-0/net1", UUID: "bf50ba0b-24a7-805a-b5bb-2c180a010007", Claims: []string{"c1", "c2"}}},
		{Name: "net2", Network: "shop/mac", MAC: "0a:58:00:00:00:01", MTU: 1300, Position: 2, Port: Port{Name: "shop/web-0/net2", UUID: "u"}},
	}}
}

var sandbox = Sandbox{ContainerID: "c1", Interface: "eth0", Conflist: "cbr0", Namespace: "shop", Pod: "web-0", UID: "u1"}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	tests := []struct {
		name    string
		message any
	}{
		{"request", &Request{Version: 1, Op: OpPlan, Body: json.RawMessage(`{"a":1}`)}},
		{"answer", &Response{Version: 1, Body: json.RawMessage(`{}`)}},
		{"error", &Response{Version: 1, Error: &Error{Code: 103, Msg: "a\nb \"c\"", Details: "d", Clean: true}}},
		{"plan request", &PlanRequest{Sandbox: sandbox, Annotations: map[string]string{"a": "b"}}},
		{"plan request, no annotations", &PlanRequest{Sandbox: sandbox, Annotations: map[string]string{}}},
		{"plan request, annotations not handed", &PlanRequest{Sandbox: sandbox}},
		{"plan", func() any { p := full(); return &p }()},
		{"bind", &BindRequest{Sandbox: sandbox, Plan: full(), Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`),
			Results: []json.RawMessage{json.RawMessage(`{"a":1.10}`), json.RawMessage("null")}}},
		{"release", &Release{Version: 1, Sandbox: sandbox, Planned: true, Ports: []Port{{Name: "n", UUID: "u", Claims: []string{"c"}}}}},
		{"released", &Released{Done: true}},
		{"check", &CheckRequest{Sandbox: sandbox, Plan: full()}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var wire bytes.Buffer
			for range 2 {
				if err := Write(&wire, tt.message); err != nil {
					t.Fatal(err)
				}
			}
			if lines := strings.Count(wire.String(), "\n"); lines != 2 {
				t.Errorf("two messages are %d lines", lines)
			}
			r := NewReader(iotest.OneByteReader(&wire))
			for range 2 {
				got := reflect.New(reflect.TypeOf(tt.message).Elem()).Interface()
				if err := r.Read(got); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, tt.message) {
					t.Errorf("got  %+v\nwant %+v", got, tt.message)
				}
			}
			if err := r.Read(&struct{}{}); !errors.Is(err, io.EOF) {
				t.Errorf("after the last message: %v", err)
			}
		})
	}
}

// The plugin reads journals of its predecessors, and agents are upgraded one node at a time: these names stay.
func TestWireNames(t *testing.T) {
	var wire bytes.Buffer
	if err := Write(&wire, Release{Version: 1, Sandbox: sandbox, Ports: full().Interfaces[0:1][0].ports()}); err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"containerID":"c1","interface":"eth0","conflist":"cbr0","namespace":"shop","pod":"web-0","uid":"u1","planned":false,` +
		`"ports":[{"name":"shop/web-0/net1","uuid":"bf50ba0b-24a7-805a-b5bb-2c180a010007","claims":["c1","c2"]}]}`
	if got := strings.TrimSpace(wire.String()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wire.Reset()
	if err := Write(&wire, full().Interfaces[0]); err != nil {
		t.Fatal(err)
	}
	want = `{"name":"net1","network":"shop/blue","mac":"0a:58:0a:01:00:07","mtu":1400,"addresses":["10.1.0.7/24","fd01::7/64"],` +
		`"routes":[{"dst":"192.0.2.0/24","gw":"10.1.0.1"}],"port":{"name":"shop/web-0/net1","uuid":"bf50ba0b-24a7-805a-b5bb-2c180a010007","claims":["c1","c2"]},"position":0}`
	if got := strings.TrimSpace(wire.String()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wire.Reset()
	others := full()
	others.Interfaces = nil
	if err := Write(&wire, others); err != nil {
		t.Fatal(err)
	}
	want = `{"interfaces":null,"delegates":[{"name":"net3","network":"shop/ext","conflist":{"cniVersion":"1.0.0","name":"ext","plugins":[{"type":"bridge","vlan":12345678901234567890}]},` +
		`"capabilities":{"mac":"02:00:00:00:00:01"},"args":[["IP","10.9.0.7/24"]],"position":1,"warning":"w"},{"name":"net4","network":"shop/ext","conflist":{"plugins":[]},"position":3}],` +
		`"default":{"interface":"net3","gateways":["10.9.0.1","fd09::1"],"keep":["10.96.0.0/12"]},` +
		`"routes":[{"dst":"198.51.100.0/24","gw":"10.1.0.9","interface":"net1"},{"dst":"2001:db8::/32","gw":"fe80::1","interface":"eth0"}],"checksumOff":true}`
	if got := strings.TrimSpace(wire.String()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func (n Interface) ports() []Port { return []Port{n.Port} }

func TestRead(t *testing.T) {
	long := func(n int) string { return `{"op":"` + strings.Repeat("x", n-len(`{"op":""}`)-1) + `"}` + "\n" }
	tests := []struct {
		name string
		wire string
		want string
		is   error // when not nil
	}{
		{"nothing", "", "EOF", io.EOF},
		{"half a line", `{"op":"pl`, "unexpected EOF", io.ErrUnexpectedEOF},
		{"a whole message without its line's end", `{"op":"plan"}`, "unexpected EOF", io.ErrUnexpectedEOF},
		{"an empty line", "\n", "message: unexpected end of JSON input", nil},
		{"garbage", "GET / HTTP/1.1\r\n", "message: invalid character 'G' looking for beginning of value", nil},
		{"bytes", "\x00\xff\n", `message: invalid character '\x00' looking for beginning of value`, nil},
		{"a list", "[]\n", "message: json: cannot unmarshal array into Go value of type agentapi.Request", nil},
		{"a field of another kind", `{"version":"1"}` + "\n", "message: json: cannot unmarshal string into Go struct field Request.version of type int", nil},
		{"two on a line", "{}{}\n", "message: invalid character '{' after top-level value", nil},
		{"the longest", long(maxMessage), "", nil},
		{"longer", long(maxMessage + 1), "message of more than 4194304 bytes", nil},
		{"longer, without an end", strings.Repeat("x", maxMessage+1), "message of more than 4194304 bytes", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got Request
			err := NewReader(strings.NewReader(tt.wire)).Read(&got)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.want || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if err == nil && len(got.Op) != maxMessage-len(`{"op":""}`)-1 {
				t.Errorf("op of %d bytes", len(got.Op))
			}
		})
	}
}

// What a peer sends without end is not kept beyond the bound.
func TestReadStopsReading(t *testing.T) {
	endless := &counting{Reader: repeat('x')}
	if err := NewReader(endless).Read(&Request{}); err == nil {
		t.Fatal("it is a message")
	}
	if endless.n > maxMessage+64<<10 {
		t.Errorf("%d bytes were read", endless.n)
	}
}

type repeat byte

func (r repeat) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r)
	}
	return len(b), nil
}

type counting struct {
	io.Reader
	n int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

// A connection that breaks is not a peer that went: its error passes.
func TestReadPassesErrors(t *testing.T) {
	broken := errors.New("broken")
	err := NewReader(io.MultiReader(strings.NewReader(`{"a`), iotest.ErrReader(broken))).Read(&Request{})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestWriteIsOneWrite(t *testing.T) {
	var w writes
	if err := Write(&w, full()); err != nil {
		t.Fatal(err)
	}
	if w != 1 {
		t.Errorf("%d writes", w)
	}
	if err := Write(io.Discard, func() {}); err == nil {
		t.Error("a function is a message")
	}
}

type writes int

func (w *writes) Write(b []byte) (int, error) {
	*w++
	return len(b), nil
}

func TestCheckVersion(t *testing.T) {
	tests := []struct {
		version int
		want    bool
	}{
		{Version, true}, {Version - 1, Version > 1}, {Version + 1, false}, {Version - 2, false}, {0, false}, {-1, false},
	}
	for _, tt := range tests {
		err := CheckVersion(tt.version)
		if (err == nil) != tt.want {
			t.Errorf("version %d: %v", tt.version, err)
		}
		if want := fmt.Sprintf("protocol version %d is not understood, only %d", tt.version, Version); !tt.want &&
			(!conf.HasCode(err, conf.CodeTryAgain) || err.Error() != want) {
			t.Errorf("version %d: %v; want %s with code 11", tt.version, err, want)
		}
	}
}

// An error says the same on both sides of the socket.
func TestErrorsPassTheSocket(t *testing.T) {
	tests := []struct {
		name string
		err  error
	}{
		{"with code and details", fmt.Errorf("net1: %w", conf.Errorf(conf.CodeInUse, "choose another", "10.1.0.7 is held by %s", "shop/web-1"))},
		{"with signs of formats in it", conf.Errorf(conf.CodeInvalidConfig, "%s", "interface %q", "a%d")},
		{"without a code", io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var wire bytes.Buffer
			if err := Write(&wire, Response{Error: NewError(tt.err)}); err != nil {
				t.Fatal(err)
			}
			var got Response
			if err := NewReader(&wire).Read(&got); err != nil {
				t.Fatal(err)
			}
			code, msg, details := conf.Describe(got.Error.Err(false))
			wantCode, wantMsg, wantDetails := conf.Describe(tt.err)
			if code != wantCode || msg != wantMsg || details != wantDetails {
				t.Errorf("got  %d %q %q\nwant %d %q %q", code, msg, details, wantCode, wantMsg, wantDetails)
			}
		})
	}
}

func TestClean(t *testing.T) {
	tests := []struct {
		name            string
		clean, repeated bool
		want            bool
	}{
		{"clean", true, false, true},
		{"clean, but asked before", true, true, false},
		{"not clean", false, false, false},
		{"not clean, asked before", false, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := (&Error{Code: 104, Msg: "no address left", Details: "d", Clean: tt.clean}).Err(tt.repeated)
			if errors.Is(err, ErrClean) != tt.want {
				t.Errorf("is ErrClean: %t", !tt.want)
			}
			code, msg, details := conf.Describe(fmt.Errorf("ADD: %w", err))
			if code != 104 || msg != "ADD: no address left" || details != "d" {
				t.Errorf("%d %q %q", code, msg, details)
			}
		})
	}
	if err := (*Error)(nil).Err(false); err != nil {
		t.Errorf("no error is %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"", "{}\n", `{"version":1,"op":"plan","body":{}}` + "\n", "[1]\nx", "\n\n", `{"body":null}` + "\n" + `{"body"`, "null\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := NewReader(bytes.NewReader(wire))
		for range bytes.Count(wire, []byte("\n")) {
			var request Request
			if err := r.Read(&request); err != nil {
				continue // the next line is a message of its own
			}
			var again bytes.Buffer
			if err := Write(&again, request); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			var second Request
			if err := NewReader(&again).Read(&second); err != nil || second.Op != request.Op || second.Version != request.Version {
				t.Fatalf("%+v became %+v: %v", request, second, err)
			}
		}
		if err := r.Read(&Request{}); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after the last line: %v", err)
		}
	})
}

// FuzzPlan holds against each other what the plugin takes from an agent and what it then carries out.
func FuzzPlan(f *testing.F) {
	text, err := json.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"interfaces":[{"name":"net1","mac":"02:00:00:00:00:01","mtu":1400,"addresses":[""],"routes":[{}]}]}`))
	f.Add([]byte(`{"interfaces":[{}]}`))
	f.Add([]byte(`{"delegates":[{"name":"net1"}],"default":{"interface":"net1","gateways":[""],"keep":[""]},"routes":[{"interface":"lo"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Plan
		if json.Unmarshal(text, &p) != nil || p.Check("eth0") != nil {
			return
		}
		names := map[string]bool{"eth0": true}
		for _, i := range p.Interfaces {
			checkName(t, i.Name, names)
			for _, a := range i.Addresses {
				if !a.IsValid() || a.Addr().Is4In6() || a.Addr().Zone() != "" {
					t.Errorf("address %s", a)
				}
			}
			for _, r := range i.Routes {
				checkRoute(t, r)
			}
		}
		for _, d := range p.Delegates {
			checkName(t, d.Name, names)
		}
		for _, r := range p.Routes {
			checkRoute(t, r.Route)
			if !names[r.Interface] {
				t.Errorf("route by %q", r.Interface)
			}
		}
		if d := p.Default; d != nil {
			if !names[d.Interface] || slices.ContainsFunc(d.Gateways, func(g netip.Addr) bool { return !g.IsValid() || g.Is4In6() || g.Zone() != "" }) ||
				slices.ContainsFunc(d.Keep, func(k netip.Prefix) bool { return !k.IsValid() || k.Addr().Is4In6() }) {
				t.Errorf("default %+v", d)
			}
		}
	})
}

func checkName(t *testing.T, name string, taken map[string]bool) {
	t.Helper()
	if taken[name] || name == "lo" || len(name) > 15 || strings.Contains(name, "/") {
		t.Errorf("interface %q", name)
	}
	taken[name] = true
}

func checkRoute(t *testing.T, r conf.Route) {
	t.Helper()
	if !r.Dst.IsValid() || !r.GW.IsValid() || r.Dst.Addr().Is4() != r.GW.Is4() {
		t.Errorf("route %v", r)
	}
}
