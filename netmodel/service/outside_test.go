package service

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// typed is a spec of type LoadBalancer as the API server completes it, with these keys.
func typed(keys string) string {
	return `{"type":"LoadBalancer","loadBalancerClass":"ovn-multinet/gateway","allocateLoadBalancerNodePorts":false,
		"clusterIP":"10.96.0.9","clusterIPs":["10.96.0.9"],"externalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],
		"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster"` + keys + `}`
}

// TestOutside: a Service asks for outside addresses by its type or by the annotation.
func TestOutside(t *testing.T) {
	both := annotations(OutsideAnnotation, "2001:db8::9,192.0.2.9")
	tests := []struct {
		name, spec  string
		annotations map[string]string
		want        string // addresses and sources
		typed       bool
		gateway     bool
	}{
		{"by the type", typed(onePort), annotations(), "[] []", true, false},
		{"by the type, at an address", typed(onePort), both, "[192.0.2.9 2001:db8::9] []", true, false},
		{"by the type, with sources", typed(`,"loadBalancerSourceRanges":["198.51.100.0/24"," 2001:db8:1::/64 "]` + onePort),
			annotations(), "[] [198.51.100.0/24 2001:db8:1::/64]", true, false},
		{"by the annotation", spec(onePort), annotations(OutsideAnnotation, " auto "), "[] []", false, false},
		{"by the annotation, at an address", spec(onePort), both, "[192.0.2.9 2001:db8::9] []", false, false},
		{"by the annotation, with sources", spec(onePort),
			annotations(OutsideAnnotation, "auto", SourcesAnnotation, "198.51.100.7/24,2001:db8:1::/64"),
			"[] [198.51.100.0/24 2001:db8:1::/64]", false, false},
		{"with affinity", spec(`,"sessionAffinity":"ClientIP"` + onePort), both, "[192.0.2.9 2001:db8::9] []", false, false},
		{"at the gateway's own address", spec(onePort), annotations(OutsideAnnotation, " gateway"), "[] []", false, true},
		{"at the gateway's own address, by the type", typed(onePort), annotations(OutsideAnnotation, "gateway"), "[] []", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := parsed(t, tt.spec, tt.annotations)
			if s.Outside == nil || !s.Headless() || s.LoadBalancer != tt.typed || s.Outside.Gateway != tt.gateway ||
				fmt.Sprint(s.Outside.Fixed, " ", s.Outside.Sources) != tt.want {
				t.Errorf("got %+v, outside %+v; want %s", s, s.Outside, tt.want)
			}
			if again, err := ParseText("shop", "web", s.Text); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("%v; from its text %+v, want %+v", err, again, s)
			}
		})
	}
	if s := parsed(t, spec(onePort), annotations()); s.Outside != nil {
		t.Errorf("without annotation: %+v", s.Outside)
	}
}

func TestOutsideRefused(t *testing.T) {
	auto := annotations(OutsideAnnotation, "auto")
	sources := func(list string) map[string]string {
		return annotations(OutsideAnnotation, "auto", SourcesAnnotation, list)
	}
	tests := []struct {
		name, spec  string
		annotations map[string]string
		why         string
	}{
		{"no class", strings.Replace(typed(onePort), `"loadBalancerClass":"ovn-multinet/gateway",`, "", 1), auto,
			`spec.loadBalancerClass: write "ovn-multinet/gateway"`},
		{"another class", strings.Replace(typed(onePort), "/gateway", "/other", 1), auto, "spec.loadBalancerClass: "},
		{"node ports", strings.Replace(typed(onePort), "false", "true", 1), auto, "spec.allocateLoadBalancerNodePorts: "},
		{"Local", strings.Replace(typed(onePort), `"externalTrafficPolicy":"Cluster"`, `"externalTrafficPolicy":"Local"`, 1), auto,
			"spec.externalTrafficPolicy: Local"},
		{"no port", typed(""), annotations(), "spec.ports: "},
		{"no port of the gateway", spec(""), annotations(OutsideAnnotation, "gateway"), "spec.ports: "},
		{"the gateway's address and another", spec(onePort), annotations(OutsideAnnotation, "gateway,192.0.2.1"), `"gateway" is neither`},
		{"no address", spec(onePort), annotations(OutsideAnnotation, "public"), OutsideAnnotation + `: "public"`},
		{"two addresses of a family", spec(onePort), annotations(OutsideAnnotation, "192.0.2.1,192.0.2.2"), "one address of each family"},
		{"an address of another family", spec(`,"ipFamilies":["IPv4"]` + onePort), annotations(OutsideAnnotation, "2001:db8::9"),
			"address 2001:db8::9"},
		{"no subnet", spec(onePort), sources("198.51.100.0"), SourcesAnnotation + `: "198.51.100.0"`},
		{"no sources", spec(onePort), sources(""), SourcesAnnotation + `: ""`},
		{"IPv4 in IPv6", spec(onePort), sources("::ffff:198.51.100.0/120"), SourcesAnnotation},
		{"many sources", spec(onePort), sources(strings.Repeat("198.51.100.0/24,", MaxSources) + "::/0"), "65 subnets"},
		{"sources without address", spec(onePort), annotations(SourcesAnnotation, "198.51.100.0/24"), "has no outside address"},
		{"sources without type", spec(`,"loadBalancerSourceRanges":["198.51.100.0/24"]` + onePort), auto, SourcesAnnotation},
		{"sources twice", typed(`,"loadBalancerSourceRanges":["198.51.100.0/24"]` + onePort), sources("198.51.100.0/24"), "either"},
		{"bad sources", typed(`,"loadBalancerSourceRanges":["all"]` + onePort), annotations(), `spec.loadBalancerSourceRanges: "all"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := NewObject("shop", "web", 1, ours, tt.annotations, []byte(tt.spec))
			if o.Service != nil || !strings.Contains(o.Refusal, tt.why) {
				t.Errorf("refused: %q, want %q", o.Refusal, tt.why)
			}
		})
	}
}
