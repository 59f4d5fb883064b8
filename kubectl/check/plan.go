package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Plan is what is installed, or what the user is going to install.
type Plan struct {
	Distribution string // "": not given
	NetDir       string
	BinDir       string
	Primary      string
	OVSSocket    string
	Bridge       string
	Image        string   // of the plugin
	Endpoints    []string // of NB
	// BringsOVN says that the chart runs OVN and Open vSwitch (ovn.enabled). Then it finds the endpoints of NB itself.
	// Without values and before an installation, this is not Decided: the nodes' own OVN is fine, too.
	BringsOVN       bool
	Decided         bool
	Datapath        string // of this OVN: auto, kernel or userspace
	TunnelInterface string // of this OVN; "": not given
	// KnowsNB says that the endpoints are decided, by the installation or by values.
	KnowsNB       bool
	KeepOnPrimary []netip.Prefix
	Subnets       []Subnet
}

// Subnet is a network that will be used, or is used.
type Subnet struct {
	Of       string // what has the network, as the user knows it
	Prefix   netip.Prefix
	Physical bool // a network outside the cluster, which the nodes may have addresses in
}

// DefaultImage is the plugin's image as the chart names it by default.
const DefaultImage = "localhost/ovn-multinet-plugin:dev"

// values are the chart's values that the checks need.
type values struct {
	Distribution string
	Images       struct{ Plugin string }
	OVN          struct {
		Enabled         *bool
		NBEndpoints     []string
		Bridge          string
		OVSSocket       string
		Datapath        string
		TunnelInterface string
	}
	CNI   struct{ ConfDir, BinDir, Primary string }
	Agent struct{ KeepOnPrimary []string }

	Networks json.RawMessage // a list, which a later file replaces

	Controller struct {
		Routers map[string]struct{ JoinSubnet, ExternalSubnet string }
	}
}

// ReadPlan returns what is going to be installed: by files with values of the chart, where a later file wins, and by
// subnets of planned networks. Without files it is what is installed.
func ReadPlan(c *Cluster, files, subnets []string) (Plan, error) {
	var p Plan
	if len(files) > 0 {
		var v values
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return p, fmt.Errorf("--values: %w", err)
			}
			if err := yaml.Unmarshal(text, &v); err != nil {
				return p, fmt.Errorf("--values: %s: %w", file, err)
			}
		}
		if err := p.fill(&v); err != nil {
			return p, err
		}
	} else if c.Installed() {
		p.fromInstalled(c)
	} else {
		p.BringsOVN = true // as the chart does by default
	}
	for _, text := range subnets {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return p, fmt.Errorf("--subnet: %q is no subnet: write it like 10.1.0.0/16", text)
		}
		p.Subnets = append(p.Subnets, Subnet{Of: "--subnet", Prefix: prefix.Masked()})
	}
	p.defaults(c)
	return p, nil
}

func (p *Plan) fill(v *values) error {
	p.Distribution, p.Image = v.Distribution, v.Images.Plugin
	if _, known := distributions[p.Distribution]; !known && p.Distribution != "" {
		return fmt.Errorf("--values: distribution %q is none of %s", p.Distribution,
			strings.Join(slices.Sorted(maps.Keys(distributions)), ", "))
	}
	p.Decided, p.BringsOVN = true, v.OVN.Enabled == nil || *v.OVN.Enabled // the chart's default
	p.Endpoints, p.KnowsNB, p.Bridge, p.OVSSocket = v.OVN.NBEndpoints, !p.BringsOVN, v.OVN.Bridge, v.OVN.OVSSocket
	p.Datapath, p.TunnelInterface = v.OVN.Datapath, v.OVN.TunnelInterface
	p.NetDir, p.BinDir, p.Primary = v.CNI.ConfDir, v.CNI.BinDir, v.CNI.Primary
	for _, text := range v.Agent.KeepOnPrimary {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--values: agent.keepOnPrimary: %q is no subnet: write it like 10.244.0.0/16", text)
		}
		p.KeepOnPrimary = append(p.KeepOnPrimary, prefix.Masked())
	}
	for _, name := range slices.Sorted(maps.Keys(v.Controller.Routers)) {
		r := v.Controller.Routers[name]
		for key, list := range map[string]string{"joinSubnet": r.JoinSubnet, "externalSubnet": r.ExternalSubnet} {
			of := fmt.Sprintf("%s of router %s in --values", key, name)
			for _, text := range words(list) {
				prefix, err := netip.ParsePrefix(text)
				if err != nil {
					return fmt.Errorf("%s: %q is no subnet: write it like 192.0.2.0/24", of, text)
				}
				p.Subnets = append(p.Subnets, Subnet{Of: of, Prefix: prefix.Masked(), Physical: key == "externalSubnet"})
			}
		}
	}
	return p.addNetworks(v.Networks)
}

// addNetworks adds the subnets of the chart's networks.
func (p *Plan) addNetworks(list json.RawMessage) error {
	var networks []struct {
		Name, Namespace string
		Config          map[string]any
	}
	if len(list) == 0 {
		return nil
	}
	if err := json.Unmarshal(list, &networks); err != nil {
		return fmt.Errorf("--values: networks: %w", err)
	}
	for _, one := range networks {
		config := map[string]any{"type": conf.NetworkType}
		maps.Copy(config, one.Config)
		text, err := json.Marshal(config)
		if err != nil {
			return err
		}
		network, err := netmodel.ParseNetwork(cmp.Or(one.Namespace, "default"), one.Name, text)
		if err != nil {
			return fmt.Errorf("--values: network %s: %w", one.Name, err)
		}
		for _, prefix := range network.Subnets {
			p.Subnets = append(p.Subnets, Subnet{Of: "network " + network.NAD() + " in --values", Prefix: prefix,
				Physical: network.Topology == netmodel.Localnet})
		}
	}
	return nil
}

// fromInstalled reads the plan from the ConfigMap and from the arguments of the installer.
func (p *Plan) fromInstalled(c *Cluster) {
	p.Decided, p.BringsOVN = true, c.bringsOVN()
	p.KnowsNB = !p.BringsOVN
	if c.Config != nil {
		p.Endpoints = words(c.Config.Data["OVN_MULTINET_NB_ENDPOINTS"])
		p.Bridge, p.OVSSocket = c.Config.Data["OVN_MULTINET_BRIDGE"], c.Config.Data["OVN_MULTINET_OVS_SOCKET"]
		for _, text := range words(c.Config.Data["OVN_MULTINET_KEEP_ON_PRIMARY"]) {
			if prefix, err := netip.ParsePrefix(text); err == nil {
				p.KeepOnPrimary = append(p.KeepOnPrimary, prefix.Masked())
			}
		}
	}
	p.Image = readArgs(c.Agents, installerContainer, map[string]*string{
		"--net-dir=": &p.NetDir, "--bin-dir=": &p.BinDir, "--primary=": &p.Primary,
	})
	if d := c.daemonSet("ovn-node"); d != nil && p.BringsOVN {
		readArgs(d, "vswitchd", map[string]*string{"--datapath=": &p.Datapath, "--tunnel-interface=": &p.TunnelInterface})
	}
}

// readArgs reads arguments of a container, and returns its image.
func readArgs(d *appsv1.DaemonSet, container string, flags map[string]*string) (image string) {
	containers := d.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return ""
	}
	for flag, value := range flags {
		for _, arg := range containers[i].Args {
			if text, found := strings.CutPrefix(arg, flag); found {
				*value = text
			}
		}
	}
	return containers[i].Image
}

// defaults completes the plan with the chart's defaults and those of the cluster's distribution.
func (p *Plan) defaults(c *Cluster) {
	preset := distributions[cmp.Or(p.Distribution, c.distribution(), "kubeadm")]
	p.NetDir, p.BinDir = cmp.Or(p.NetDir, preset.ConfDir), cmp.Or(p.BinDir, preset.BinDir)
	p.OVSSocket, p.Bridge = cmp.Or(p.OVSSocket, "/run/openvswitch/db.sock"), cmp.Or(p.Bridge, "br-int")
	p.Image = cmp.Or(p.Image, DefaultImage)
	if len(p.KeepOnPrimary) == 0 {
		p.KeepOnPrimary = preset.KeepOnPrimary
	}
}

// words splits a list at its commas and trims the words.
func words(list string) (all []string) {
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}
