package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dsnet/try"
)

// PluginType is the name of our plugin.
const PluginType = "ovn-multinet"

// networkName is the name of Flannel's conflist, by which host-local keeps its leases.
const networkName = "cbr0"

// writeFlannelFiles writes what flanneld leaves on a node: subnet.env, and the conflist it ships.
func (n *Node) writeFlannelFiles(context.Context) (err error) {
	defer try.Handle(&err)
	gateway := n.PodCIDR.IP.To4()
	env := fmt.Sprintf("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=%d.%d.%d.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=%t\n",
		gateway[0], gateway[1], gateway[2],
		// true as in Flannel's own manifests: the bridge plugin then leaves masquerading to flanneld.
		true)
	b := try.E1(json.MarshalIndent(n.conflist(n.flannelPlugins()), "", "  "))
	for path, content := range map[string][]byte{
		n.subnetFile(): []byte(env),
		filepath.Join(n.Dir, "net.d", "10-flannel.conflist"): append(b, '\n'),
	} {
		try.E(os.MkdirAll(filepath.Dir(path), 0o755))
		try.E(os.WriteFile(path, content, 0o644))
	}
	return nil
}

func (n *Node) subnetFile() string    { return filepath.Join(n.Dir, "flannel", "subnet.env") }
func (n *Node) leaseDir() string      { return filepath.Join(n.Dir, "host-local") }
func (n *Node) flannelState() string  { return filepath.Join(n.Dir, "flannel", "delegates") }
func (n *Node) cacheDir() string      { return filepath.Join(n.Dir, "libcni") }
func (n *Node) emptyCacheDir() string { return filepath.Join(n.Dir, "libcni-without-cache") }

// flannelPlugins is Flannel's chain, with the folders of this node: nodes share a file system here.
func (n *Node) flannelPlugins() []map[string]any {
	return []map[string]any{
		{
			"type":       "flannel",
			"subnetFile": n.subnetFile(),
			"dataDir":    n.flannelState(),
			"ipam":       map[string]any{"dataDir": n.leaseDir()},
			"delegate":   map[string]any{"hairpinMode": true, "isDefaultGateway": true},
		},
		{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
	}
}

func (n *Node) ourPlugin() map[string]any {
	entry := map[string]any{
		"type":             PluginType,
		"capabilities":     map[string]any{annotationsCapability: true},
		"agentSocket":      n.AgentSocket,
		"stateDir":         n.StateDir,
		"allowedDelegates": []string{},
		"logFile":          n.PluginLog,
		"timeout":          "60s",
	}
	if n.PluginConf != nil {
		n.PluginConf(entry)
	}
	return entry
}

func (n *Node) conflist(plugins []map[string]any) map[string]any {
	return map[string]any{"name": networkName, "cniVersion": n.CNIVersion, "plugins": plugins}
}

// ConfList is the node's conflist as a runtime reads it: Flannel's, with our entry last.
func (n *Node) ConfList() ([]byte, error) {
	plugins := n.flannelPlugins()
	if !n.PrimaryOnly {
		plugins = append(plugins, n.ourPlugin())
	}
	return json.Marshal(n.conflist(plugins))
}
