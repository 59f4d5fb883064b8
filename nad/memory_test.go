package nad

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// bridgeOf is a configuration of as many bytes.
func bridgeOf(size int) string {
	const text = `{"type":"bridge","capabilities":{"mac":true},"note":""}`
	return strings.Replace(text, `"note":"`, `"note":"`+strings.Repeat("x", size-len(text)), 1)
}

// resolveLarge resolves networks of shop, whose NADs big0, big1 … have configurations of a size.
func resolveLarge(t *testing.T, networks string, config string) ([]Attachment, int, error) {
	t.Helper()
	requests, err := ParseRequests(map[string]string{conf.NetworksAnnotation: networks}, "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	attachments, err := Resolve(context.Background(), "shop", requests, Rules{}, func(_ context.Context, namespace, name string) (*netmodel.NAD, error) {
		read++
		return nadOf(namespace, name, config), nil
	})
	return attachments, read, err
}

// A configuration that a pod names often is in memory once, and each attachment has its own wishes.
func TestBoundaryAttachmentsShareAConfiguration(t *testing.T) {
	const size = 250 << 10
	elements := []string{`{"name":"big","mac":"02:00:00:00:00:01"}`}
	for range MaxNetworks - 1 {
		elements = append(elements, `{"name":"big"}`)
	}
	attachments, read, err := resolveLarge(t, "["+strings.Join(elements, ",")+"]", bridgeOf(size))
	if err != nil || read != 1 || len(attachments) != MaxNetworks {
		t.Fatalf("%d attachments of %d NADs read, %v", len(attachments), read, err)
	}
	texts := map[*byte]int{}
	for i := range attachments {
		texts[&attachments[i].Delegate.Conflist[0]] = len(attachments[i].Delegate.Conflist)
	}
	sum := 0
	for _, n := range texts {
		sum += n
	}
	t.Attr("boundary.bytes-of-64-attachments-to-one-nad-of-256000", fmt.Sprint(sum))
	if len(texts) != 1 || sum > size+200 {
		t.Errorf("%d texts of %d bytes together", len(texts), sum)
	}
	if a, b := attachments[0].Delegate, attachments[1].Delegate; len(a.Capabilities) != 1 || len(b.Capabilities) != 0 {
		t.Errorf("capabilities %s and %s", a.Capabilities, b.Capabilities)
	}
	// A device belongs to one attachment.
	before := string(attachments[1].Delegate.Conflist)
	if err := attachments[0].Delegate.SetDevice("0000:18:02.5"); err != nil {
		t.Fatal(err)
	}
	if err := attachments[2].Delegate.SetDevice("0000:18:02.6"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"0000:18:02.5", "", "0000:18:02.6"} {
		text := string(attachments[i].Delegate.Conflist)
		if got := strings.Count(text, "0000:18:02."); got != 2*min(len(want), 1) || !strings.Contains(text, want) || len(attachments[i].Delegate.Capabilities) > 2 {
			t.Errorf("attachment %d has %d device IDs, want %q", i, got, want)
		}
	}
	if string(attachments[1].Delegate.Conflist) != before || CheckConfigsSize(attachments) != nil {
		t.Error("the others' configuration changed")
	}
	if err := attachments[4].Delegate.SetDevice("0000:18:02.7"); err != nil {
		t.Fatal(err)
	}
	if err := CheckConfigsSize(attachments); err == nil {
		for i := 5; i < 8 && err == nil; i++ {
			if err = attachments[i].Delegate.SetDevice(fmt.Sprint("d", i)); err == nil {
				err = CheckConfigsSize(attachments)
			}
		}
		if !conf.HasCode(CheckConfigsSize(attachments), conf.CodeInvalidConfig) {
			t.Error("devices make texts of their own without a bound")
		}
	}
}

// What is too large is refused by its size, and the bound is named.
func TestBoundaryConfigurationsAreBounded(t *testing.T) {
	args := func(n int) string {
		var elements []string
		for i := range n {
			elements = append(elements, fmt.Sprintf(`{"name":"big","cni-args":{"a":%d}}`, i))
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	const together = "interface net%d: network shop/%s: the configurations of the pod's networks up to this one: %d bytes are more than 1048576"
	size := func(n, each, extra int) int {
		return n*(each+len(`{"cniVersion":"0.3.1","name":"big","plugins":[]}`)) + extra
	}
	tests := []struct {
		name, networks, config, want string
		read                         int
	}{
		{"one at its bound", "big", bridgeOf(256 << 10), "", 1},
		{"one over its bound", "big", bridgeOf(256<<10 + 1), "interface net1: network shop/big: spec.config: 262145 bytes are more than 262144", 1},
		{"OVN over its bound", "big", `{"type":"ovn-multinet","x":"` + strings.Repeat("x", 20000) + `"}`,
			"interface net1: network shop/big: spec.config: 20030 bytes are more than 16384", 1},
		{"four", "bia,bib,bic,bid", bridgeOf(250 << 10), "", 4},
		{"five", "bia,bib,bic,bid,bie,bif,big", bridgeOf(250 << 10), fmt.Sprintf(together, 5, "bie", size(5, 250<<10, 0)), 5},
		{"one with cni-args each time", args(64), bridgeOf(250 << 10), fmt.Sprintf(together, 5, "big", size(5, 250<<10, 5*len(`"args":{"cni":{"a":0}},`))), 1},
		{"one that JSON makes longer", "big", strings.ReplaceAll(bridgeOf(200<<10), "x", "<"), "interface net1: network shop/big: the configurations of the pod's networks up to this one: 122", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, read, err := resolveLarge(t, tt.networks, tt.config)
			if read != tt.read {
				t.Errorf("%d NADs were read, want %d", read, tt.read)
			}
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			code, msg, details := conf.Describe(err)
			if code != conf.CodeInvalidConfig || !strings.HasPrefix(msg, tt.want) || details == "" {
				t.Errorf("got  %d %s (%s)\nwant 7 %s", code, msg, details, tt.want)
			}
		})
	}
}

// A pod is read alike from its annotations and from what a source keeps of them.
func FuzzKeptAnnotations(f *testing.F) {
	f.Add("blue,red@x", `[{"dst":"10.0.0.0/8"}]`, false, "")
	f.Add(" \n", "", false, "")
	f.Add("", "x", true, "y")
	f.Add("\x0099999999 bytes", "\x001 bytes", false, "routes")
	f.Fuzz(func(t *testing.T, networks, routes string, primary bool, other string) {
		networks = strings.Repeat(networks, 1+len(other)*500) // some are over the bound
		if len(networks) > 1<<20 {
			return
		}
		whole := map[string]string{conf.NetworksAnnotation: networks, conf.RoutesAnnotation: routes}
		if primary {
			whole[conf.DefaultNetworkAnnotation] = other
		}
		if other != "" {
			whole[conf.AnnotationPrefix+other] = other
		}
		kept := conf.TrimAnnotations(whole)
		a, errA := ParseRequests(conf.NetworkAnnotations(whole), "shop", "eth0")
		b, errB := ParseRequests(conf.NetworkAnnotations(kept), "shop", "eth0")
		if fmt.Sprint(a) != fmt.Sprint(b) || (errA == nil) != (errB == nil) || errA != nil && len(other) < 300 && errA.Error() != errB.Error() {
			t.Errorf("%.80q: %v\n%.80q: %v", fmt.Sprint(a), errA, fmt.Sprint(b), errB)
		}
	})
}
