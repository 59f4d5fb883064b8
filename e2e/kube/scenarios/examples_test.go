//go:build kube

package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestExamplesAsWritten pastes the block of each example's README on the chart's own OVN. The examples with a way outside
// are reached from there, too. service, dns, delegate and sriov need what these nodes do not have: the cluster's DNS,
// a NIC for macvlan, a card.
func TestExamplesAsWritten(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 2, WithoutOVN: true, Physical: "provider"})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.LoadBusybox(w.Ctx))
	w.Must(w.InstallChart(w.Ctx, readmeValues))
	machine100, err := w.Outside(w.Ctx, "machine100", 100, "10.50.0.9/24")
	w.Must(err)
	machine200, err := w.Outside(w.Ctx, "machine200", 200, "192.0.2.1/24")
	w.Must(err)
	w.healthy() // so no pod starts before its node is ready
	for _, tt := range []struct {
		name  string
		after func(*world)
	}{
		{"hello", nil}, {"layer2", nil}, {"layer3", nil}, {"ovn-kubernetes", nil},
		{"localnet", func(w *world) { w.reachedFrom(machine100, w.linksIn("examples", "localnet-a")) }},
		{"router-gateway", func(w *world) { w.reachedFrom(machine200, "192.0.2.10") }},
	} {
		w.run(tt.name, func(w *world) { w.pastedExample(tt.name, tt.after) })
	}
}

// reachedFrom pings an address from outside.
func (w *world) reachedFrom(o *lab.Outside, address string) {
	w.T.Helper()
	w.until(func() error {
		_, err := o.Exec(w.Ctx, "ping", "-c1", "-W1", address)
		return err
	})
}

// linksIn is the first address of a pod's net1.
func (w *world) linksIn(namespace, pod string) (address string) {
	w.T.Helper()
	w.until(func() error {
		text := w.kubectl("get", "pod", "-n", namespace, pod, "-o", `jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
		found := regexp.MustCompile(`(?s)"interface": ?"net1".*?"ips": ?\[\s*"([^"]+)"`).FindStringSubmatch(text)
		if found == nil {
			return fmt.Errorf("pod %s/%s has the status %q", namespace, pod, text)
		}
		address = found[1]
		return nil
	})
	return address
}

var block = regexp.MustCompile("(?s)```sh\n(.*?)```")

// pastedExample runs a README's block line by line, calls after, and deletes the example. What differs from a user's
// cluster: names of nodes and NICs, which the README has the user write, and no node can pull images. Lines that need the
// pods are tried until they are there.
func (w *world) pastedExample(name string, after func(*world)) {
	root, err := lab.ModuleRoot()
	w.Must(err)
	folder := filepath.Join(root, "examples", name)
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	w.Must(err)
	var applied []string
	for line := range strings.Lines(string(block.FindSubmatch(text)[1])) {
		command, comment, _ := strings.Cut(strings.TrimSpace(line), " #")
		command, want, _ := strings.Cut(command, " | grep ")
		command = strings.NewReplacer("worker-1", "node1", "worker-2", "node2").Replace(command)
		args := strings.Fields(strings.ReplaceAll(command, "'", ""))
		if args[0] != "kubectl" {
			w.T.Fatalf("the test cannot run %q", line)
		}
		if strings.Contains(comment, "use that address") {
			args[len(args)-1] = w.linksIn("examples", "layer3-b")
		}
		switch args = args[1:]; {
		case slices.Equal(args, []string{"create", "namespace", "examples"}):
			if _, err := w.Kubectl(w.Ctx, args...); err != nil && !strings.Contains(err.Error(), "already exists") {
				w.T.Fatal(err)
			}
		case args[0] == "apply":
			applied = append(applied, w.onTheseNodes(filepath.Join(root, args[2]))...)
			for _, manifest := range applied {
				w.Must(w.Apply(w.Ctx, manifest))
			}
		case args[0] == "delete" && args[1] == "-f": // after the last line, as for all examples
		case args[0] == "label", args[0] == "delete":
			w.kubectl(args...)
		default:
			w.prints(args, strings.TrimSpace(comment), want)
		}
	}
	if after != nil {
		after(w)
	}
	w.Must(w.Delete(w.Ctx, strings.Join(applied, "\n---\n")))
	w.until(func() error {
		if left := w.kubectl("get", "pods,net-attach-def", "-n", "examples", "-o", "name"); left != "" {
			return errors.New("there is " + left)
		}
		return nil
	})
}

// onTheseNodes returns the manifests of a folder or a file as they are for these nodes.
func (w *world) onTheseNodes(path string) (all []string) {
	w.T.Helper()
	files := []string{path}
	if filepath.Ext(path) == "" {
		var err error
		files, err = filepath.Glob(filepath.Join(path, "*.yaml"))
		w.Must(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		w.Must(err)
		all = append(all, strings.NewReplacer(
			"    image: busybox\n", "    image: busybox\n    imagePullPolicy: Never\n", "interface: eth1", "interface: ext0",
		).Replace(string(text)))
	}
	return all
}

// prints runs a command until it succeeds, and prints the first word of the line's comment or what the line searches for.
func (w *world) prints(args []string, comment, search string) {
	w.T.Helper()
	follow := slices.Contains(args, "--follow")
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--follow" })
	want := strings.Trim(search[strings.LastIndex(search, " ")+1:], `'`)
	if follow {
		want, _, _ = strings.Cut(comment, ",")
	}
	run := w.Kubectl
	if args[0] == "multinet" {
		run, args = w.Multinet, args[1:]
	}
	w.until(func() error {
		out, err := run(w.Ctx, args...)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("%s: %s, want %q", strings.Join(args, " "), out, want)
		}
		return err
	})
}
