package show

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// filled returns a value of which each text is this one, and each list and pointer has one element.
func filled[T any](text string) (v T) {
	fill(reflect.ValueOf(&v).Elem(), text)
	return v
}

func fill(v reflect.Value, text string) {
	if !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), text)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	}
}

// TestTablesOfAHostileNB: whatever nodes and tenants have written into NB, objects and journals, a table has the same
// lines and as many cells as ever, and no control character.
func TestTablesOfAHostileNB(t *testing.T) {
	network := func(text string) *Network {
		n := filled[Network](text)
		n.network = &netmodel.Network{Topology: netmodel.Layer2}
		return &n
	}
	for name, write := range map[string]func(w io.Writer, text string) error{
		"networks": func(w io.Writer, text string) error { return List(w, []Network{*network(text)}) },
		"network":  func(w io.Writer, text string) error { return Details(w, network(text)) },
		"policies": func(w io.Writer, text string) error { return PolicyList(w, filled[[]Policy](text)) },
		"policy": func(w io.Writer, text string) error {
			d := filled[PolicyDetails](text)
			return PolicyPage(w, &d)
		},
		"services": func(w io.Writer, text string) error { return ServiceList(w, filled[[]Service](text)) },
		"service": func(w io.Writer, text string) error {
			d := filled[ServiceDetails](text)
			return ServicePage(w, &d)
		},
		"answer": func(w io.Writer, text string) error {
			a := filled[Answer](text)
			return AnswerText(w, &a)
		},
		"failed DELs": func(w io.Writer, text string) error { return FailedDELs(w, filled[[]agentapi.FailedDEL](text)) },
		"stale":       func(w io.Writer, text string) error { return StaleSandboxes(w, filled[[]agentapi.StaleSandbox](text)) },
		"findings":    func(w io.Writer, text string) error { return Findings(w, filled[[]check.Finding](text)) },
	} {
		var plain, hostile bytes.Buffer
		if err := write(&plain, "x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := write(&hostile, "x\ny\tz\x1b[2J\r\u202e\u009b"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want, got := strings.Count(plain.String(), "\n"), strings.Count(hostile.String(), "\n")
		if bad := strings.IndexFunc(hostile.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); got != want || bad >= 0 {
			t.Errorf("%s: %d lines, want %d; a control character at %d:\n%q", name, got, want, bad, hostile.String())
		}
	}
}
