package kube

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// HelmEnv names Helm's program; the Makefile sets it.
const HelmEnv = "OVN_MULTINET_HELM"

// OwnOVN are the values of a chart that brings OVN: the nodes' kernel has no datapath for it, so its tunnels need an
// interface that the node does not use itself.
const OwnOVN = "ovn: {datapath: auto, tunnelInterface: eth1, replaceAfter: 10s}\n"

// Helm runs Helm as the admin, and returns what it prints, also with an error.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	program := os.Getenv(HelmEnv)
	if program == "" {
		return "", fmt.Errorf("%s is not set: it names Helm's program, the Makefile sets it", HelmEnv)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append(args, "--kubeconfig="+c.Kubeconfig, "--namespace=ovn-multinet")...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir())
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := lab.StartIn(c.CentralNetNS(), cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// LoadImages gives the nodes the images of this version, OVN's among them.
func (c *Cluster) LoadImages(ctx context.Context) (err error) {
	defer try.Handle(&err)
	p := &Product{Bin: os.Getenv(ProductEnv), Tag: "dev"}
	if p.Bin == "" {
		return fmt.Errorf("%s is not set: it names the folder of the programs to install, the Makefile sets it", ProductEnv)
	}
	try.E(c.loadProduct(ctx, p))
	img := try.E1(images.OVN(try.E1(trixie.OVNPackages("amd64")), p.Bin))
	return c.LoadImage(ctx, img.Name, img.Files, img.Entrypoint)
}

// InstallChart installs the chart with values in YAML. It does not wait for the pods.
func (c *Cluster) InstallChart(ctx context.Context, values string) (err error) {
	defer try.Handle(&err)
	root := try.E1(lab.ModuleRoot())
	file := filepath.Join(c.dir(), "values.yaml")
	try.E(os.WriteFile(file, []byte(values), 0o600))
	c.step("installing ovn-multinet by its chart")
	try.E1(c.Helm(ctx, "upgrade", "--install", "--create-namespace", "ovn-multinet", filepath.Join(root, "images", "chart"), "--values="+file))
	return nil
}
