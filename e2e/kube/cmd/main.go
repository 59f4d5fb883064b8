// Command cmd owns a cluster to play with: it keeps one of two nodes up in the background until it is taken down. It
// may do nothing that package kube does not offer.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

const usage = `usage: cmd up          bring a Kubernetes of two nodes up and leave it in the background
       cmd shell       a shell in it
       cmd kubectl ... kubectl in it, with the caller's files; kubectl multinet too
       cmd down        take it down
`

// chartEnv asks for three bare nodes, and for the chart with its own OVN on them.
const chartEnv = "OVN_MULTINET_CHART"

var kept = lab.Kept{Name: "kube", Args: []string{"up"}, Line: "The cluster stays up."}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch strings.Join(args, " ") {
	case "up":
		if !kept.Is() {
			return kept.Start()
		}
		return stay()
	case "shell":
		return shell()
	case "down":
		return kept.Down()
	}
	if len(args) > 1 && args[0] == "kubectl" {
		return kubectl(args)
	}
	fmt.Fprint(os.Stderr, usage)
	return errors.New("no such command")
}

// shell is a shell in the lab's namespaces, but on the network of a node.
func shell() error {
	programs, err := programs()
	if err != nil {
		return err
	}
	return kept.Exec(nil, kube.OnNode("", kept.Name, programs, "bash")...)
}

// kubectl enters nothing but the network of a node: files are the caller's.
func kubectl(args []string) (err error) {
	defer try.Handle(&err)
	programs := try.E1(programs())
	pid := try.E1(kept.Inside())
	return lab.Exec(nil, kube.OnNode(fmt.Sprintf("/proc/%d/root", pid), kept.Name, programs, args...)...)
}

// programs are the folders of kubectl and of its plugin kubectl-multinet.
func programs() (_ []string, err error) {
	defer try.Handle(&err)
	bin := try.E1(kube.Build(context.Background(), os.Stderr))
	self := try.E1(os.Executable())
	return []string{bin, cmp.Or(os.Getenv(kube.ProductEnv), filepath.Join(filepath.Dir(self), "product"))}, nil
}

// stay is the process in the background: it brings the cluster up and waits to be ended.
func stay() (err error) {
	kube.Enter(lab.WithoutOurs())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	options := kube.Options{Name: kept.Name, Nodes: 2, Step: func(format string, args ...any) {
		fmt.Printf("%s\n", fmt.Sprintf(format, args...))
	}}
	byChart := os.Getenv(chartEnv) != ""
	if byChart {
		options.Nodes, options.WithoutOVN = 3, true
	}
	c, err := kube.New(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	switch {
	case byChart:
		err = errors.Join(c.LoadImages(ctx), c.InstallChart(ctx, kube.OwnOVN))
	case os.Getenv(kube.ProductEnv) != "":
		err = c.InstallProduct(ctx)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s It was up in %.1f s. As root:\n\n", kept.Line, time.Since(began).Seconds())
	fmt.Printf("  %s shell\n", os.Args[0])
	fmt.Println("    kubectl get nodes")
	for _, n := range c.Nodes {
		fmt.Printf("    nsenter --target %d --all    on %s\n", n.Holder.Pid(), n.Name)
	}
	fmt.Printf("    ls %s    logs\n", c.Dir)
	fmt.Printf("  %s kubectl get nodes\n", os.Args[0])
	fmt.Printf("  %s kubectl apply -f FILE    your files\n", os.Args[0])
	fmt.Printf("  %s kubectl multinet network list\n", os.Args[0])
	fmt.Printf("  %s down\n\n", os.Args[0])
	<-ctx.Done()
	return nil
}
