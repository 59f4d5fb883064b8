package netmodel

import (
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// A list of one plugin is the same network as the plugin without the list.
func TestListOfOne(t *testing.T) {
	for single, list := range map[string]string{
		`{"cniVersion":"0.3.1","type":"ovn-multinet","subnets":"10.1.0.0/16","routes":[{"dst":"10.9.0.0/16"}]}`: `{"cniVersion":"0.3.1","name":"x",
			"disableCheck":true,"plugins":[{"type":"ovn-multinet","subnets":"10.1.0.0/16","routes":[{"dst":"10.9.0.0/16"}]}]}`,
		`{"name":"l2","type":"ovn-k8s-cni-overlay","subnets":"10.1.0.0/16"}`: `{"cniVersion":"1.0.0","name":"l2","plugins":[{"type":"ovn-k8s-cni-overlay","subnets":"10.1.0.0/16"}]}`,
	} {
		a, err := ParseNetwork("shop", "blue", []byte(single))
		if err != nil {
			t.Fatal(err)
		}
		b, err := ParseNetwork("shop", "blue", []byte(list))
		if err != nil {
			t.Fatal(err)
		}
		if a.Canonical() != b.Canonical() || a.ID() != b.ID() || b.Chained != "" {
			t.Errorf("got  %s %s\nwant %s %s", b.ID(), b.Canonical(), a.ID(), a.Canonical())
		}
	}
}

const chainedList = `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"ovn-multinet","subnets":"10.1.0.0/16"},{"type":"sbr"},{"type":"tuning","x":[12345678901234567890]}]}`

// The plugins behind ours belong to the accepted configuration, and to its revision.
func TestChainedPluginsAreAccepted(t *testing.T) {
	n, err := ParseNetwork("shop", "blue", []byte(chainedList))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"sbr"},{"type":"tuning","x":[12345678901234567890]}]}`; n.Chained != want {
		t.Errorf("got  %s\nwant %s", n.Chained, want)
	}
	again, err := ParseAccepted("shop", "blue", []byte(n.Canonical()))
	if err != nil {
		t.Fatalf("%s: %v", n.Canonical(), err)
	}
	if again.Canonical() != n.Canonical() || again.Chained != n.Chained {
		t.Errorf("%s became %s", n.Canonical(), again.Canonical())
	}
	other, err := ParseNetwork("shop", "blue", []byte(strings.Replace(chainedList, `{"type":"sbr"},`, "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if other.Revision() == n.Revision() {
		t.Error("one plugin less has the same revision")
	}
	if err := n.CheckChange(other); err != nil {
		t.Errorf("a change for new pods is refused: %v", err)
	}
	if err := n.CheckEqual(other); err == nil || !strings.HasPrefix(err.Error(), "plugins: ") {
		t.Errorf("two lists that differ: %v", err)
	}
}

func TestListsThatAreRefused(t *testing.T) {
	of := func(more string) string {
		return `{"name":"x","plugins":[{"type":"ovn-multinet","subnets":"10.1.0.0/16"}` + more + `]}`
	}
	for text, want := range map[string]string{
		`{"plugins":[{"type":"ovn-multinet","subnets":"x"}]}`:        `plugins[0]: subnets: `,
		`{"plugins":[{"type":"ovn-multinet","subnet":"x"}]}`:         `plugins[0]: unknown key "subnet", did you mean "subnets"?`,
		`{"plugin":1,"plugins":[{"type":"ovn-multinet"}]}`:           `unknown key "plugin", did you mean "plugins"?`,
		`{"name":1,"plugins":[{"type":"ovn-multinet"}]}`:             `"name" does not take a JSON number`,
		`{"plugins":[],"plugins":[{"type":"ovn-multinet"}]}`:         `key "plugins" is given twice`,
		`{"Plugins":[{"type":"ovn-multinet"}]}`:                      `unknown key "Plugins"`,
		`{"plugins":[{"type":"ovn-k8s-cni-overlay"}]}`:               `plugins[0]: name: "" is no network's name`,
		of(`,{"type":"ovn-multinet"}`):                               `plugins[1]: type: "ovn-multinet" is a network of its own, it cannot be chained`,
		of(`,{"type":"sbr"},{"type":"sbr","table":"x"}`):             `plugins[2]: plugin "sbr": "table": not a number`,
		of(`,{"type":"vrf"}`):                                        `plugins[1]: plugin "vrf": "vrfname" is missing`,
		of(`,{"type":"tuning","prevResult":{}}`):                     `plugins[1]: "prevResult" is for the runtime to set`,
		of(`,{"type":"../tuning"}`):                                  `plugins[1]: type: "../tuning" is no name of a plugin`,
		of(`,{"type":"tuning","Type":"sbr"}`):                        `keys "type" and "Type" differ in the case of letters only`,
		of(`,null`):                                                  `plugins[1]: null`,
		of(`,"sbr"`):                                                 `plugins[1]: `,
		of(strings.Repeat(`,{"type":"sbr"}`, MaxPlugins)):            `33 plugins are more than 32`,
		of(`,{"type":"x","y":"` + strings.Repeat("y", 17000)):        `not valid JSON`,
		of(`,{"type":"x","y":"` + strings.Repeat("y", 17000) + `"}`): `spec.config: 17092 bytes are more than 16384`,
	} {
		_, err := ParseNetwork("shop", "blue", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "network shop/blue: "+want) || !conf.HasCode(err, conf.CodeInvalidConfig) {
			t.Errorf("%.100s: %v, want %s", text, err, want)
		}
	}
	// A controller of another version may have accepted it.
	if _, err := ParseAccepted("shop", "blue", []byte(of(strings.Repeat(`,{"type":"sbr","of":"tomorrow"}`, MaxPlugins)))); err != nil {
		t.Error(err)
	}
}

// Charts declare capabilities for every plugin. An OVN port serves ips and mac with or without them.
func TestCapabilitiesHaveNoEffect(t *testing.T) {
	plain, err := ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`))
	if err != nil {
		t.Fatal(err)
	}
	n, err := ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","subnets":"10.1.0.0/16","capabilities":{"ips":true}}`))
	if err != nil || n.Canonical() != plain.Canonical() {
		t.Errorf("%v: %+v", err, n)
	}
	if _, err := ParseNetwork("shop", "blue", []byte(`{"type":"ovn-multinet","capabilities":["ips"]}`)); !conf.HasCode(err, conf.CodeInvalidConfig) {
		t.Errorf("a list of capabilities: %v", err)
	}
}
