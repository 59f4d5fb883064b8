package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// blue, green and the others are the networks that the tests use.
const (
	blueNAD  = `{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.1.0.0/16","excludeSubnets":"10.1.255.0/24","routes":[{"dst":"10.99.0.0/16","gw":"10.1.0.1"}]}`
	greenNAD = `{"cniVersion":"1.0.0","name":"green","type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64"}`
)

// nadManifest is a NAD as YAML.
func nadManifest(namespace, name, config string) string {
	return fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  namespace: %s\n  name: %s\nspec:\n  config: '%s'\n", namespace, name, config)
}

func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l := lab.Start(t, lab.Options{Nodes: 2})
	if err := l.StartController(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.StartAgents(ctx); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]string{"blue": blueNAD, "green": greenNAD} {
		if err := l.WriteManifest(name+".yaml", nadManifest("shop", name, config)); err != nil {
			t.Fatal(err)
		}
	}
	var pods []*lab.Pod
	for i, n := range l.Nodes {
		p, err := n.NewPod(ctx, "shop", fmt.Sprintf("web-%d", i), map[string]string{"k8s.v1.cni.cncf.io/networks": "blue,green,blue"})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		res, err := p.Add(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v %v", time.Since(began), res)
		out, _ := p.Exec(ctx, "ip", "addr")
		t.Log(out)
		pods = append(pods, p)
	}
	out, err := l.NBCtl(ctx, "show")
	t.Log(out, err)
	out, _ = pods[1].Exec(ctx, "ip", "-o", "-4", "addr", "show", "net1")
	t.Log(out)
	ip := strings.Split(strings.Fields(out)[3], "/")[0]
	out, err = pods[0].Exec(ctx, "ping", "-c2", "-i0.2", "-W1", ip)
	t.Log(out, err)
	for _, p := range pods {
		began := time.Now()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		t.Log("del", time.Since(began))
	}
	out, err = l.NBCtl(ctx, "show")
	t.Log(out, err)
	for _, n := range l.Nodes {
		t.Log(n.Runs())
	}
}
