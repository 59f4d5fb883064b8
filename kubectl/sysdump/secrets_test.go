package sysdump

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const marker = "KEY-MARKER-1"

// encodings are the texts of the marker in base64, at each of the three positions that it can have there.
func encodings() (all []string) {
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + marker))
		all = append(all, text[4:len(text)-4]) // the ends depend on what is beside it
	}
	return all
}

// withMarker is an object with the marker where users and other programs write: in the annotation of kubectl apply, in
// an annotation that nobody knows, and in managedFields.
func withMarker(name, namespace, rest string) string {
	applied := fmt.Sprintf(`{"data":{"password":%q}}`, base64.StdEncoding.EncodeToString([]byte(marker)))
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"generation":3,"uid":"u-%s","labels":{"team":"a"},
		"managedFields":[{"manager":"%s","fieldsV1":{"f:%s":{}}}],"annotations":{
		"kubectl.kubernetes.io/last-applied-configuration":%q,"example.org/token":%q,"ovn-multinet/speed":%q}},%s}`,
		name, namespace, name, marker, marker, applied, marker, marker, rest)
}

// specOfPod and statusOfPod have the marker, SECRET, wherever a pod can have a secret.
const (
	specOfPod = `"spec":{"nodeName":"a","containers":[{"name":"agent","image":"i",ENV}],
		"initContainers":[{"name":"c",ENV}],"volumes":[{"name":"SECRET"}]}`
	envOfPod = `"env":[{"name":"A","value":"SECRET"}],"command":["/x","SECRET"],
		"args":["--log-level=info","--token=SECRET","SECRET","-SECRET"]`
	statusOfPod = `"status":{"phase":"Running","conditions":[{"type":"example.org/x","status":"True","message":"SECRET"}],
		"containerStatuses":[{"name":"other","state":STATE,"lastState":STATE}]}`
	stateOfPod = `{"waiting":{"reason":"R","message":"exec SECRET"},"terminated":{"exitCode":1,"message":"SECRET"}}`
)

// markedObjects have the marker in each place that may have a secret.
func markedObjects(w *world) {
	const in, template = "/namespaces/ovn-multinet/", `"spec":{"template":{POD}}`
	text := strings.NewReplacer("ENCODED", base64.StdEncoding.EncodeToString([]byte("x"+marker)), "SECRET", marker).Replace
	pod := strings.NewReplacer("ENV", envOfPod, "STATE", stateOfPod).Replace
	for _, o := range []struct{ list, name, rest string }{
		{"/api/v1" + in + "configmaps", "ovn-multinet", `"data":{"OVN_MULTINET_BRIDGE":"br-int",
			"OVN_MULTINET_NB_ENDPOINTS":"-----BEGIN\nSECRET\n","OVN_MULTINET_NB_PRIVATE_KEY":"SECRET",
			"OVN_MULTINET_NEW":"SECRET"},"binaryData":{"b":"ENCODED"}`},
		{"/api/v1" + in + "configmaps", "ovn-multinet-controller",
			`"data":{"controller.yaml":"# SECRET\nlimits: {shop: {bytes: 1000}}"}`},
		{"/api/v1" + in + "configmaps", "another",
			`"data":{"controller.yaml":"limits: {shop: {bytes: 1000}}","OVN_MULTINET_BRIDGE":"SECRET"}`},
		{"/api/v1" + in + "secrets", "ovn-multinet-nb", `"type":"Opaque","data":{"tls.key":"ENCODED"}`},
		{podsPath, "agent-a", specOfPod + "," + statusOfPod},
		{"/api/v1/pods", "web", specOfPod + "," + statusOfPod},
		{"/apis/apps/v1" + in + "daemonsets", "agent", template},
		{"/apis/apps/v1" + in + "deployments", "controller", template},
		{"/apis/batch/v1" + in + "jobs", "uninstall", template},
		{"/api/v1/nodes", "a", `"spec":{"providerID":"SECRET"},"status":{"images":[{"names":["SECRET"]}]}`},
		{"/apis/k8s.cni.cncf.io/v1beta1/multi-networkpolicies", "p", `"spec":{"podSelector":{},"x":"SECRET"}`},
		{"/apis/k8s.cni.cncf.io/v1alpha1/ipamclaims", "c", `"spec":{"network":"blue","x":"SECRET"}`},
		{"/apis/ovn-multinet.io/v1alpha1/routers", "r", `"spec":{"router":"shop/core","password":"SECRET",
			"namespaces":{"shop":{"password":"SECRET"}}},"status":{"password":"SECRET"}`},
		{"/apis/ovn-multinet.io/v1alpha1/addresspools", "p", `"spec":{"addresses":"192.0.2.16/29","namespaces":{"shop":1}},
			"status":{"password":"SECRET","conditions":[{"type":"Accepted","status":"True","observedGeneration":3}]}`},
	} {
		rest := strings.ReplaceAll(o.rest, "{POD}", "{"+specOfPod+"}")
		w.add(o.list, withMarker(o.name, "ovn-multinet", text(pod(rest))))
	}
	for _, o := range []struct{ name, config string }{
		{"foreign", `{"cniVersion":"1.0.0","type":"vpn","name":"n","password":"SECRET","ipam":{"token":"SECRET"}}`},
		{"chained", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ovn-multinet","subnets":"10.1.0.0/16"},
			{"type":"custom","password":"SECRET"}]}`},
		{"refused", `{"cniVersion":"1.0.0","type":"ovn-multinet","subnets":"10.2.0.0/16","password":"SECRET",
			"dhcp":{"password":"SECRET"}}`},
		{"good", `{"cniVersion":"1.0.0","type":"ovn-multinet","subnets":"10.3.0.0/16","routes":[{"dst":"10.4.0.0/16"}]}`},
		{"bare", `SECRET`},
		{"twice", `{"type":"ovn-multinet","name":"a","Name":"SECRET","type":"of SECRET\n"}`},
	} {
		config, _ := json.Marshal(text(o.config))
		w.add("/apis/k8s.cni.cncf.io/v1/network-attachment-definitions",
			withMarker(o.name, "shop", `"spec":{"config":`+string(config)+`}`))
	}
	w.add("/api/v1/pods", fmt.Sprintf(`{"metadata":{"name":"asks","namespace":"shop","annotations":{
		"k8s.v1.cni.cncf.io/networks":%q,"k8s.v1.cni.cncf.io/network-status":%q}}}`,
		`[{"name":"blue","cni-args":{"password":"`+marker+`"},"example.org/x":"`+marker+`"}]`,
		`[{"name":"shop/blue","interface":"net1","device-info":{"x":"`+marker+`"}}]`))
}

// TestBoundarySysdump: a secret does not get into the archive from any place that is not its own, and what a developer
// needs is there.
func TestBoundarySysdump(t *testing.T) {
	w := newWorld(t)
	markedObjects(w)
	w.logs["agent-a/agent"] = "a line\n"
	result, files := w.write()
	if result.Missing != 0 || files[MissingFile] != "" {
		t.Errorf("%d missing:\n%s", result.Missing, files[MissingFile])
	}
	for name, text := range files {
		for _, secret := range append(encodings(), marker) {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q:\n%s", name, secret, text)
			}
		}
		for _, field := range []string{"last-applied-configuration", "managedFields"} {
			if strings.Contains(text, field) && name != "omitted.txt" {
				t.Errorf("%s has %s", name, field)
			}
		}
	}
	has(t, "omitted.txt", files["omitted.txt"], "last-applied-configuration", "managedFields", "Secrets")
	for name, words := range map[string][]string{
		"installation/configmaps.json": {`"name":"ovn-multinet","namespace":"ovn-multinet","uid":"u-ovn-multinet"`,
			`"generation":3`,
			`"team":"a"`, `"OVN_MULTINET_BRIDGE":"br-int"`,
			`"OVN_MULTINET_NB_PRIVATE_KEY":12`, `"OVN_MULTINET_NEW":12`, `"b":13`,
			`"sizes":{"OVN_MULTINET_BRIDGE":12,"controller.yaml":29}`,
			`"controller.yaml":{"limits":{"shop":{"bytes":1000}}}`, `"others":2`, `"omitted":["ovn-multinet/speed"]`},
		"installation/secrets.json":     {`"name":"ovn-multinet-nb"`, `"type":"Opaque"`, `"sizes":{"tls.key":13}`},
		"installation/daemonsets.json":  {`{"name":"agent","image":"i","args":["--log-level=info"],"otherArgs":3}`},
		"installation/deployments.json": {`"name":"controller"`, `"otherArgs":3`},
		"installation/jobs.json":        {`"name":"uninstall"`, `"otherArgs":3`},
		"installation/pods.json":        {`"name":"agent-a"`, `"nodeName":"a"`, `"reason":"R"`, `"otherArgs":3`},
		"objects/pods.json": {`"name":"web"`, `"phase":"Running"`, `"reason":"R"`, `"name":"asks"`,
			`"k8s.v1.cni.cncf.io/networks":[{"name":"blue"}]`, `"interface":"net1"`},
		"objects/nodes.json":      {`"name":"a"`},
		"objects/policies.json":   {`"name":"p"`, `"podSelector":{}`},
		"objects/ipamclaims.json": {`"network":"blue"`},
		"objects/routers.json":    {`"name":"r"`, `"spec":{"router":"shop/core"}`},
		"objects/addresspools.json": {`"spec":{"addresses":"192.0.2.16/29","namespaces":{"shop":1}}`,
			`"message":"the configuration has the entry"`},
		"objects/version.json": {"v1.34.4"},
		"objects/networks.json": {`"config":{"cniVersion":"1.0.0","name":"n","type":"vpn"}`, `"subnets":"10.1.0.0/16"`,
			`{"type":"custom"}`, `"network":{"type":"ovn-multinet","topology":"layer2","subnets":"10.1.0.0/16"`,
			`"subnets":"10.2.0.0/16"`, `"name":"bare"`, `"configBytes":12`, `"network":{`,
			`"routes":[{"dst":"10.4.0.0/16"`},
	} {
		has(t, name, files[name], words...)
		if !json.Valid([]byte(files[name])) {
			t.Errorf("%s is no JSON:\n%s", name, files[name])
		}
	}
}
