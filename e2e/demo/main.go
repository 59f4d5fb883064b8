// Command demo owns the tour of the main job: it brings up a lab of two nodes, attaches three pods and shows what
// they have, who reaches whom and what was written. It may do nothing that a user could not do by hand.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func main() {
	keep := flag.Bool("keep", false, "leave the lab up, in the background")
	down := flag.Bool("down", false, "take down the lab that -keep left up")
	shell := flag.Bool("shell", false, "open a shell in the lab that -keep left up")
	flag.Parse()
	switch {
	case *shell:
		exit(kept.Exec(nil, "bash"))
	case *down:
		exit(kept.Down())
	case *keep && !kept.Is():
		exit(kept.Start())
	}
	lab.Enter()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, *keep))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, keep bool) (err error) {
	began := time.Now()
	l, err := lab.New(ctx, lab.Options{Name: "demo", Nodes: 2, Step: step})
	if err != nil {
		return err
	}
	defer func() {
		step("taking everything down")
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
		if err == nil {
			fmt.Printf("\nDone in %.1f s, nothing is left.\n", time.Since(began).Seconds())
		}
	}()
	d := &demo{Lab: l}
	for _, part := range []func(context.Context) error{d.start, d.networks, d.pods, d.table, d.reach, d.northbound, d.tool} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if keep {
		d.tellKept()
		<-ctx.Done()
		return nil
	}
	step("deleting the pods (CNI DEL)")
	for _, p := range d.all {
		if err := p.Close(ctx); err != nil {
			return err
		}
	}
	return d.empty(ctx)
}

var steps int

// step prints one line of the tour.
func step(format string, args ...any) {
	steps++
	fmt.Printf("%2d. %s\n", steps, fmt.Sprintf(format, args...))
}

// show prints what belongs to a step.
func show(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		fmt.Print("      ", line)
	}
	fmt.Println()
}

type demo struct {
	*lab.Lab
	all []*lab.Pod
}

func (d *demo) start(ctx context.Context) error {
	if err := d.StartController(ctx); err != nil {
		return err
	}
	return d.StartAgents(ctx)
}

const networks = `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: shop, name: blue}
spec:
  config: '{"cniVersion":"1.0.0","name":"blue","type":"ovn-multinet","subnets":"10.1.0.0/16"}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: shop, name: green}
spec:
  config: '{"cniVersion":"1.0.0","name":"green","type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64"}'
`

func (d *demo) networks(context.Context) error {
	step("creating two networks; the controller makes a logical switch of each")
	show(networks)
	return d.WriteManifest("networks.yaml", networks)
}

func (d *demo) pods(ctx context.Context) error {
	for _, p := range []struct {
		node     int
		name     string
		networks string
	}{{0, "web-0", "blue,green"}, {1, "web-1", "blue,green"}, {1, "db-0", "blue"}} {
		n := d.Nodes[p.node]
		pod, err := n.NewPod(ctx, "shop", p.name, map[string]string{"k8s.v1.cni.cncf.io/networks": p.networks})
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := pod.Add(ctx); err != nil {
			return fmt.Errorf("pod %s: %w", p.name, err)
		}
		step("pod shop/%s on %s, annotation k8s.v1.cni.cncf.io/networks: %s (CNI ADD of the whole chain: %d ms, of which ours %d ms)",
			p.name, n.Name, p.networks, time.Since(began).Milliseconds(), ours(n).Milliseconds())
		d.all = append(d.all, pod)
	}
	return nil
}

// ours is how long our plugin's last call on a node took.
func ours(n *lab.Node) time.Duration {
	runs := n.Runs()
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].Plugin == "ovn-multinet" {
			return runs[i].Took
		}
	}
	return 0
}

// empty shows that the pods left nothing in NB.
func (d *demo) empty(ctx context.Context) error {
	return lab.Eventually(ctx, func() error {
		out, err := d.NBCtl(ctx, "--bare", "--columns=name", "list", "Logical_Switch_Port")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("ports are left in NB: %s", strings.Fields(out))
		}
		return err
	})
}
