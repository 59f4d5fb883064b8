package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestConfigurationsThatAreNone has what makes a parser stumble in NADs and annotations: a clear error that names the
// network and the key, or the element, and nothing made, of the pod's other networks neither.
// Conformance: F-7 F-12 F-13
func TestConfigurationsThatAreNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := w.recorderOn("good", "")
	for name, config := range map[string]string{
		"nothing": `null`, "list": `[]`, "empty": `{}`, "no-plugins": `{"plugins":[]}`, "null-plugins": `{"plugins":null}`, "null-plugin": `{"plugins":[{"type":"recorder"},null]}`,
		"args": `{"type":"recorder","args":"x"}`, "args-null": `{"type":"recorder","args":null}`, "typeless": `{"plugins":[{"type":1}]}`, "half": `{"type":"recorder"`,
		"incapable": `{"type":"recorder","capabilities":{"portMappings":false}}`,
	} {
		w.definition(name, config)
	}
	p, prev := w.withoutNetworks("web", "")
	w.base = w.snapshot()
	ours := lab.OnlyOurs(prev)
	for _, tt := range []struct {
		networks string
		words    []string
	}{
		{"good,blue,nothing", []string{"interface net3", "shop/nothing", `"type" is missing`}},
		{"good,blue,list", []string{"interface net3", "shop/list", "array"}},
		{"good,blue,empty", []string{"interface net3", "shop/empty", `"type" is missing`}},
		{"good,blue,no-plugins", []string{"interface net3", "shop/no-plugins", `"plugins" is empty`}},
		{"good,blue,null-plugins", []string{"interface net3", "shop/null-plugins", `"plugins" is empty`}},
		{"good,blue,null-plugin", []string{"interface net3", "shop/null-plugin", "plugins[1]: null"}},
		{"good,blue,args", []string{"interface net3", "shop/args", `"args" is not an object`}},
		{"good,blue,args-null", []string{"interface net3", "shop/args-null", `"args" is not an object`}},
		{"good,blue,typeless", []string{"interface net3", "shop/typeless", `"type" is not a string`}},
		{"good,blue,half", []string{"interface net3", "shop/half"}},
		{`[{"name":"good"},{"name":"blue"},{"name":"incapable","portMappings":[{"hostPort":8080,"containerPort":80}]}]`,
			[]string{"interface net3", "shop/incapable", `no plugin of the network declares the capability "portMappings"`}},
		{`[null]`, []string{networksAnnotation, "element 0: null"}},
		{`[{"name":"good"},null]`, []string{networksAnnotation, "element 1: null"}},
		{`null`, []string{networksAnnotation, "null"}},
		{`[[]]`, []string{networksAnnotation, "element 0"}},
		{`[{"name":null}]`, []string{networksAnnotation, `element 0: "name" is missing`}},
	} {
		t.Run(tt.networks, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx, base: w.base}
			p.Annotations = map[string]string{networksAnnotation: tt.networks}
			_, err := p.Add(w.ctx, ours)
			w.refused(err, conf.CodeInvalidConfig, tt.words...)
			equal(t, "calls of the good network's plugin", w.toldOf(log, p), nil)
			equal(t, "journal", w.journalled(p.Node), nil)
			w.asBefore()
		})
	}
	p.Annotations[networksAnnotation] = "good,blue"
	w.add(p, ours) // and the agent serves the next one
	equal(t, "calls after all", w.toldOf(log, p), []string{"ADD web net1"})
	w.end(p)
}

// TestIsolationHasNoWayAround: neither annotation brings a pod of one namespace onto another's network, or moves its first
// interface.
// Conformance: F-8
func TestIsolationHasNoWayAround(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates) // isolation is the default
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	for _, namespace := range []string{"infra", "shop"} {
		w.inNamespace(namespace, "rec", addressed(log, "192.0.2.7/24", ""))
	}
	const refused = "annotation v1.multus-cni.io/default-network is not supported"
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		code        uint
		words       string
	}{
		{"another namespace's as the default network", map[string]string{conf.DefaultNetworkAnnotation: "infra/rec"}, conf.CodeInvalidConfig, refused},
		{"its own as the default network", map[string]string{conf.DefaultNetworkAnnotation: "rec"}, conf.CodeInvalidConfig, refused},
		{"beside networks", map[string]string{conf.DefaultNetworkAnnotation: "infra/rec", networksAnnotation: "rec,blue"}, conf.CodeInvalidConfig, refused},
		{"of another namespace", map[string]string{networksAnnotation: "rec,infra/rec"},
			conf.CodeNotAllowed, "interface net2: network infra/rec is not for pods of namespace shop"},
	} {
		for runtime, opts := range map[string][]lab.CallOption{"hands annotations": nil, "hands none": {lab.WithoutAnnotations()}} {
			t.Run(tt.name+", and the runtime "+runtime, func(t *testing.T) {
				w := &world{Lab: w.Lab, t: t, ctx: w.ctx, base: w.base}
				p, err := w.Nodes[0].NewPod(w.ctx, "shop", "web", tt.annotations)
				w.must(err)
				_, err = p.Add(w.ctx, opts...)
				w.refused(err, tt.code, tt.words)
				equal(t, "interfaces", len(w.links(p)), 1)
				equal(t, "journal", w.journalled(p.Node), nil)
				w.end(p)
				equal(t, "calls", w.toldOf(log, p), nil)
				w.asBefore()
			})
		}
	}
	p := w.attached(0, "web", "rec")
	equal(t, "its own network", w.toldOf(log, p), []string{"ADD web net1"})
	w.end(p)
}

// TestBrokenFileInTheNodesFolder: of the configurations on the node, one that is broken is its own trouble alone.
// Conformance: F-15
func TestBrokenFileInTheNodesFolder(t *testing.T) {
	t.Parallel()
	var dir string
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		withDelegates(l)
		dir = filepath.Join(l.Nodes[0].Dir, "nads.d")
		l.Nodes[0].AgentArgs = append(l.Nodes[0].AgentArgs, "--nad-conf-dir="+dir)
	})
	log := filepath.Join(w.Nodes[0].Dir, "rec.log")
	w.must(os.MkdirAll(filepath.Join(dir, "03-folder.conflist"), 0o700))
	w.must(os.Symlink("nowhere", filepath.Join(dir, "04-dangling.conflist")))
	for name, text := range map[string]string{
		"00-half.conflist": `{"name":"local","plugins":[`, "01-empty.conflist": "", "02-null.conflist": "null", "05-number.conflist": `{"name":5}`,
		"10-other.conflist": `{"name":"other","plugins":[{"type":"macvlan"}]}`,
		"20-local.conf":     addressed(log, "192.0.2.20/24", `,"name":"local","cniVersion":"1.0.0"`),
		"30-local.conflist": `{"name":"local","cniVersion":"1.0.0","plugins":[` + addressed(log, "192.0.2.30/24", "") + `]}`,
		"40-local.conflist": `{"name":"local","cniVersion":"1.0.0","plugins":[` + addressed(log, "192.0.2.40/24", "") + `]}`,
	} {
		w.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	w.must(w.WriteManifest("local.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: local}\n"))
	w.must(w.WriteManifest("absent.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: absent}\n"))
	p := w.attached(0, "web", "local")
	equal(t, "the first list of the name", w.status(p)[1].IPs, []string{"192.0.2.30"})
	none := w.pod(0, "none", "absent")
	_, err := none.Add(w.ctx)
	w.refused(err, conf.CodeNetworkNotFound, "interface net1", `no configuration in `+dir+` has the name "absent"`)
	w.end(p, none)
	equal(t, "calls", w.toldOf(log, p), []string{"ADD web net1", "DEL web net1"})
	w.asBefore()
}

// TestCodesOfDelegates: a plugin's own code reaches the runtime, of every command; one that has none, or cannot be run, is 108
// and never 999.
// Conformance: F-14
func TestCodesOfDelegates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		l.Nodes[0].PluginConf = func(entry map[string]any) { entry["allowedDelegates"] = append([]string{"absent"}, allowed...) }
	})
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	w.must(os.WriteFile(stuck, nil, 0o600))
	for name, how := range map[string]string{
		"own": `"fail":{"ADD":{"code":119,"msg":"no such wire"}}`, "try-again": `"fail":{"ADD":{"code":11,"msg":"wait"}}`,
		"codeless": `"fail":{"ADD":{"msg":"no code"}}`, "wordless": `"fail":{"ADD":""}`, "no-result": `"print":0`,
	} {
		w.definition(name, `{"cniVersion":"1.0.0","type":"recorder","log":"`+filepath.Join(w.Nodes[0].Dir, "log")+`",`+how+`}`)
	}
	w.definition("no-log", `{"cniVersion":"1.0.0","type":"recorder","log":"/nonexistent/log"}`)
	w.definition("absent", `{"type":"absent"}`)
	for _, tt := range []struct {
		network string
		code    uint
		words   []string
	}{
		{"own", 119, []string{"no such wire"}},
		{"try-again", conf.CodeTryAgain, []string{"wait"}},
		{"codeless", conf.CodeDelegateFailed, []string{"no code"}},
		{"wordless", conf.CodeDelegateFailed, []string{"recorder"}},
		{"no-result", conf.CodeDelegateFailed, []string{"shop/no-result"}},
		{"absent", conf.CodeDelegateFailed, []string{"delegate absent: failed to find plugin"}},
		{"no-log", conf.CodeDelegateFailed, []string{"recorder", "/nonexistent/log"}},
	} {
		p := w.pod(0, "web", tt.network)
		_, err := p.Add(w.ctx)
		w.refused(err, tt.code, append(tt.words, "interface net1")...)
		if tt.network != "no-log" {
			w.end(p)
			w.asBefore()
			continue
		}
		// What cannot be run cannot be undone: it is tried, and given up.
		w.refused(p.Del(w.ctx), conf.CodeDelegateFailed, tt.words...)
		w.end(p)
	}
}
