package nad

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// resourced resolves a pod's attachments to one NAD of a resource.
func resourced(t *testing.T, resource, config, text string) ([]Attachment, error) {
	t.Helper()
	requests, err := ParseRequests(networks(text), "shop", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	return Resolve(context.Background(), "shop", requests, Rules{}, always(config, netmodel.NAD{Resource: resource}))
}

// The annotation has the name of Device Information Specification 1.1.0, section 4.1, whatever our constant says.
func TestAnnotationOfAResource(t *testing.T) {
	if netmodel.ResourceNameAnnotation != "k8s.v1.cni.cncf.io/resourceName" {
		t.Errorf("it is %s", netmodel.ResourceNameAnnotation)
	}
}

// An attachment takes a device of its network's resource, or a certain one of it.
func TestResourceOfAnAttachment(t *testing.T) {
	for _, tt := range []struct{ name, resource, text, want string }{
		{"none", "", "ext", " "},
		{"one", "a.example/vf", "ext", "a.example/vf "},
		{"each time", "a.example/vf", "ext,ext", "a.example/vf ; a.example/vf "},
		{"a certain device", "a.example/vf", `[{"name":"ext","deviceID":"0000:18:02.5"},{"name":"ext"}]`, "a.example/vf 0000:18:02.5; a.example/vf "},
		{"a device of any signs", "a.example/vf", `[{"name":"ext","deviceID":"!~/\"\\<x"}]`, `a.example/vf !~/"\<x`},
		{"a device of a long name", "a.example/vf", `[{"name":"ext","deviceID":"` + strings.Repeat("d", 253) + `"}]`, "a.example/vf " + strings.Repeat("d", 253)},
		{"the longest name", strings.Repeat("a", 253) + "/" + strings.Repeat("B", 63), "ext", strings.Repeat("a", 253) + "/" + strings.Repeat("B", 63) + " "},
		{"a name of all signs", "a-1.example/V_f.1-x", "ext", "a-1.example/V_f.1-x "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := resourced(t, tt.resource, `{"type":"sriov"}`, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for i := range got {
				words = append(words, got[i].Resource+" "+got[i].DeviceID)
			}
			if text := strings.Join(words, "; "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestResourceRefuses(t *testing.T) {
	const other = `{"type":"sriov"}`
	const annotation = "annotation k8s.v1.cni.cncf.io/resourceName: "
	certain := `[{"name":"ext","deviceID":"0000:18:02.5"}]`
	tests := []struct{ name, resource, config, text, want, details string }{
		{"a device of a network without a resource", "", other, certain, "deviceID on network shop/ext: it is a network of no resource, so no device of it is the pod's",
			correctPod + ", or name the resource in the NetworkAttachmentDefinition's annotation k8s.v1.cni.cncf.io/resourceName"},
		{"a device of an OVN network", "", config(""), certain, "deviceID on network shop/ext: it is a network of no resource, so no device of it is the pod's",
			correctPod + ", or name the resource in the NetworkAttachmentDefinition's annotation k8s.v1.cni.cncf.io/resourceName"},
		{"a resource of an OVN network", "a.example/vf", config(""), "ext", "network shop/ext: " + annotation + "an OVN port takes no device",
			"remove the annotation from the NetworkAttachmentDefinition, or make the network one of another plugin"},
		{"both", "a.example/vf", config(""), certain, "network shop/ext: " + annotation + "an OVN port takes no device",
			"remove the annotation from the NetworkAttachmentDefinition, or make the network one of another plugin"},
	}
	for resource, shown := range map[string]string{
		"vf": `"vf"`, "/vf": `"/vf"`, "a.example/": `"a.example/"`, "a.example/vf/x": `"a.example/vf/x"`, "A.example/vf": `"A.example/vf"`, "a.example/vf ": `"a.example/vf "`,
		"-a/vf": `"-a/vf"`, "a.example/-vf": `"a.example/-vf"`, "../vf": `"../vf"`, "a/..": `"a/.."`, "a.example/vf\n": `"a.example/vf\n"`, "a_b/vf": `"a_b/vf"`,
		"a/" + strings.Repeat("b", 64):   `"a/` + strings.Repeat("b", 38) + `…"`,
		strings.Repeat("a", 254) + "/vf": `"` + strings.Repeat("a", 40) + `…"`,
	} {
		tests = append(tests, struct{ name, resource, config, text, want, details string }{
			"no resource " + shown, resource, other, "ext", "network shop/ext: " + annotation + shown + " is no resource like example.com/name", "correct the NetworkAttachmentDefinition's annotation",
		})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := resourced(t, tt.resource, tt.config, tt.text)
			if err == nil {
				t.Fatalf("taken as %+v", got)
			}
			wantRefusal(t, err, "interface net1: "+tt.want)
			if _, _, details := conf.Describe(err); details != tt.details {
				t.Errorf("details %s\nwant    %s", details, tt.details)
			}
		})
	}
}

// The device is in the first plugin's configuration, by both names, and nowhere else; all else stays as it was.
func TestSetDevice(t *testing.T) {
	tests := []struct{ name, config, id, want string }{
		{"one plugin", `{"type":"sriov"}`, "0000:18:02.5",
			`{"cniVersion":"0.3.1","name":"ext","plugins":[{"deviceID":"0000:18:02.5","pciBusID":"0000:18:02.5","type":"sriov"}]}`},
		{"the first of two", `{"name":"l","plugins":[{"type":"sriov"},{"type":"tuning","deviceID":"mine"}]}`, "d1",
			`{"cniVersion":"0.3.1","name":"l","plugins":[{"deviceID":"d1","pciBusID":"d1","type":"sriov"},{"deviceID":"mine","type":"tuning"}]}`},
		{"what the NAD says of it", `{"type":"host-device","deviceID":"0000:00:01.0","pciBusID":7}`, "d1",
			`{"cniVersion":"0.3.1","name":"ext","plugins":[{"deviceID":"d1","pciBusID":"d1","type":"host-device"}]}`},
		{"keys that are others", `{"type":"sriov","deviceIDs":"a","device":"eth1","vfio":{"deviceID":"x"}}`, "d1",
			`{"cniVersion":"0.3.1","name":"ext","plugins":[{"device":"eth1","deviceID":"d1","deviceIDs":"a","pciBusID":"d1","type":"sriov","vfio":{"deviceID":"x"}}]}`},
		{"numbers keep their digits", `{"disableCheck":true,"plugins":[{"type":"sriov","vlan":12345678901234567890,"x":[1.10,1e400]},{"type":"tuning","y":-0}]}`, "d1",
			`{"cniVersion":"0.3.1","disableCheck":true,"name":"ext","plugins":[{"deviceID":"d1","pciBusID":"d1","type":"sriov","vlan":12345678901234567890,"x":[1.10,1e400]},{"type":"tuning","y":-0}]}`},
		{"a name of odd signs", `{"type":"sriov"}`, `a"\é`, `{"cniVersion":"0.3.1","name":"ext","plugins":[{"deviceID":"a\"\\é","pciBusID":"a\"\\é","type":"sriov"}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := delegated(t, Rules{}, tt.config, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := d.SetDevice(tt.id); err != nil {
				t.Fatal(err)
			}
			if string(d.Conflist) != tt.want {
				t.Errorf("got  %s\nwant %s", d.Conflist, tt.want)
			}
			var capability string
			if err := json.Unmarshal(d.Capabilities["deviceID"], &capability); err != nil || capability != tt.id || len(d.Capabilities) != 1 {
				t.Errorf("capabilities %s, %v; want deviceID %s", d.Capabilities, err, tt.id)
			}
			// Another choice takes the place of the first.
			if err := d.SetDevice("d9"); err != nil || strings.Count(string(d.Conflist), `"d9"`) != 2 || string(d.Capabilities["deviceID"]) != `"d9"` {
				t.Errorf("%s with %s, %v", d.Conflist, d.Capabilities, err)
			}
		})
	}
}

// Two attachments to one network have two configurations.
func TestDevicesOfTwoAttachments(t *testing.T) {
	got, err := resourced(t, "a.example/vf", `{"plugins":[{"type":"sriov","vlan":7}]}`, `[{"name":"ext"},{"name":"ext","cni-args":{"a":1}}]`)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"d1", "d2"} {
		if err := got[i].Delegate.SetDevice(id); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{
		`{"cniVersion":"0.3.1","name":"ext","plugins":[{"deviceID":"d1","pciBusID":"d1","type":"sriov","vlan":7}]}`,
		`{"cniVersion":"0.3.1","name":"ext","plugins":[{"args":{"cni":{"a":1}},"deviceID":"d2","pciBusID":"d2","type":"sriov","vlan":7}]}`,
	} {
		if d := got[i].Delegate; string(d.Conflist) != want || string(d.Capabilities["deviceID"]) != `"d`+string(rune('1'+i))+`"` {
			t.Errorf("got  %s with %s\nwant %s", d.Conflist, d.Capabilities, want)
		}
	}
}
