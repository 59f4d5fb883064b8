// Command cmd owns a cluster to play with: it keeps one of two nodes up in the background until it is taken down. It
// may do nothing that package kube does not offer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

const usage = `usage: cmd up          bring a Kubernetes of two nodes up and leave it in the background
       cmd shell       a shell in it
       cmd kubectl ... kubectl in it
       cmd down        take it down
`

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
		return enter("bash")
	case "down":
		return kept.Down()
	}
	if len(args) > 1 && args[0] == "kubectl" {
		return enter(args...)
	}
	fmt.Fprint(os.Stderr, usage)
	return errors.New("no such command")
}

// enter runs a command where kubectl is found, and finds the cluster.
func enter(command ...string) error {
	bin, err := kube.Build(context.Background(), os.Stderr)
	if err != nil {
		return err
	}
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kube.KubeconfigPath(kept.Name)}
	return kept.Exec(env, append([]string{"env"}, append(env, command...)...)...)
}

// stay is the process in the background: it brings the cluster up and waits to be ended.
func stay() (err error) {
	kube.Enter(lab.WithoutOurs())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	c, err := kube.New(ctx, kube.Options{Name: kept.Name, Nodes: 2, Step: func(format string, args ...any) {
		fmt.Printf("%s\n", fmt.Sprintf(format, args...))
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if os.Getenv(kube.ProductEnv) != "" {
		if err := c.InstallProduct(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("%s It was up in %.1f s. As root:\n\n", kept.Line, time.Since(began).Seconds())
	fmt.Printf("  %s shell\n", os.Args[0])
	fmt.Println("    kubectl get nodes")
	for _, n := range c.Nodes {
		fmt.Printf("    nsenter --target %d --all    on %s\n", n.Holder.Pid(), n.Name)
	}
	fmt.Printf("    ls %s    logs\n", c.Dir)
	fmt.Printf("  %s kubectl get nodes\n", os.Args[0])
	fmt.Printf("  %s down\n\n", os.Args[0])
	<-ctx.Done()
	return nil
}
