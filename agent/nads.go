package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// What plans with delegates take of an agent's memory: making one allocates less than thirty times the text of its
// configurations, which are at most nad.MaxConfigs.
const (
	// maxLarge is how many plans with large configurations are made at once. Others wait.
	maxLarge = 4
	// smallText is how much text of configurations a plan may fetch without waiting, in bytes: a plugin's configuration
	// has a few hundred.
	smallText = 8 << 10
)

// planNADs are the NADs as one plan reads them. A configuration that the source does not keep is fetched once, and is
// dropped with the plan. A configuration that NB did not accept is replaced by the accepted one.
type planNADs struct {
	agent    *Agent
	requests []nad.Request
	accepted map[string]string        // by NAD: the accepted configuration that the plan uses
	fetched  map[string]*netmodel.NAD // by the NAD and the digest of its configuration
	size     int                      // of what was fetched, as often as the pod names it
	release  func()                   // nil: the plan is a small one
}

func newPlanNADs(a *Agent) *planNADs {
	return &planNADs{agent: a, accepted: map[string]string{}, fetched: map[string]*netmodel.NAD{}}
}

// close makes room for the next plan with large configurations.
func (n *planNADs) close() {
	if n.release != nil {
		n.release()
	}
}

// use has the plan use the accepted configuration of a NAD, "namespace/name", from now on.
func (n *planNADs) use(nad, config string) { n.accepted[nad] = config }

// useAccepted has the plan use the accepted configurations of all the pod's networks. It returns false if that
// changes nothing.
func (n *planNADs) useAccepted(ctx context.Context) (changed bool) {
	for i := range n.requests {
		namespace, name := n.requests[i].Namespace, n.requests[i].Name
		def, err := n.get(ctx, namespace, name)
		if errors.Is(err, netmodel.ErrNotFound) {
			continue
		}
		if err != nil { // the network's identity may be known without the text of its configuration
			def, err = n.agent.getNAD(ctx, namespace, name)
		}
		if err != nil {
			def = &netmodel.NAD{Namespace: namespace, Name: name}
		}
		id, err := def.NetworkID()
		if err != nil {
			id = def.ID()
		}
		if id == "" {
			continue // a network of other plugins: NB knows nothing of it, and may be away
		}
		config, err := n.agent.nb.Accepted(ctx, id, def.ID())
		if err != nil || config == "" {
			continue
		}
		if now, err := def.Network(); err == nil && now.Canonical() == config {
			continue
		}
		n.use(def.ID(), config)
		changed = true
	}
	return changed
}

// get returns a NAD, with the accepted configuration if the plan uses that.
func (n *planNADs) get(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	def, err := n.getOwn(ctx, namespace, name)
	config, replaced := n.accepted[namespace+"/"+name]
	if !replaced || errors.Is(err, netmodel.ErrNotFound) {
		return def, err
	}
	if err != nil { // the NAD has lost its configuration
		def = &netmodel.NAD{Namespace: namespace, Name: name}
	}
	return def.WithAccepted(config), nil
}

// getOwn returns a NAD with its own configuration, a delegate's with its text.
func (n *planNADs) getOwn(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	def, err := n.agent.getNAD(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	size := def.Config.Size()
	if !def.Config.Omitted() || size > netmodel.MaxDelegateConfig {
		return def, err
	}
	if kind, err := def.Kind(); err != nil || conf.IsOVN(kind) {
		return def, nil // refused without its text
	}
	key := fmt.Sprintf("%s %x", def.ID(), def.Config.Digest())
	if known := n.fetched[key]; known != nil {
		return known, nil
	}
	if err := n.admit(ctx, def, size, size); err != nil {
		return nil, err
	}
	live, err := n.agent.source.LiveNAD(ctx, namespace, name)
	if err != nil {
		return nil, sourceError(err)
	}
	if more := live.Config.Size() - size; more > 0 { // the source's copy is older than the text
		if err := n.admit(ctx, def, size+more, more); err != nil {
			return nil, err
		}
	}
	n.fetched[key] = live
	return live, nil
}

// admit waits until the agent has room for a plan with this text, of that size, and refuses a pod whose texts exceed
// their bound. more is how much of the size was not admitted before. admit waits once in a plan, and so never for a
// plan that waits for this one.
func (n *planNADs) admit(ctx context.Context, def *netmodel.NAD, size, more int) error {
	for _, known := range n.fetched {
		size += known.Config.Size()
	}
	if size > nad.MaxConfigs {
		return nad.ConfigsTooLarge(size)
	}
	for i := range n.requests {
		if n.requests[i].Namespace == def.Namespace && n.requests[i].Name == def.Name {
			n.size += more // with cni-args or a device each has a text of its own
		}
	}
	if n.release != nil || n.size <= smallText {
		return nil
	}
	if err := n.agent.large.Acquire(ctx, 1); err != nil {
		return conf.Errorf(conf.CodeTryAgain, "the ADD succeeds when those plans are made",
			"%d other pods of this node have networks with large configurations: %w", maxLarge, err)
	}
	n.release = func() { n.agent.large.Release(1) }
	return nil
}

func sourceError(err error) error {
	if errors.Is(err, netmodel.ErrNotFound) {
		return err
	}
	return conf.Errorf(conf.CodeTryAgain,
		"does the source of NetworkAttachmentDefinitions answer, and does each of its files parse?", "%w", err)
}

// getNAD returns a NAD, with the configuration from this node's folder if it has none of its own (multi-net-spec 1.3,
// section 3.4.1).
func (a *Agent) getNAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	def, err := a.source.NAD(ctx, namespace, name)
	if err != nil {
		return nil, sourceError(err)
	}
	if def.Config.Size() > 0 {
		return def, nil
	}
	if a.conf.NADConfDir == "" {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "write its spec.config, or start the agent with --nad-conf-dir",
			"NetworkAttachmentDefinition %s/%s has no spec.config", namespace, name)
	}
	other := *def
	text, file, err := configFile(a.conf.NADConfDir, name)
	if err != nil {
		return nil, err
	}
	other.File, other.Config = file, netmodel.ParseConfig(namespace, name, text, netmodel.MaxDelegateConfig)
	if kind, err := other.Kind(); err == nil && conf.IsOVN(kind) {
		return nil, conf.Errorf(conf.CodeInvalidConfig,
			"the controller makes OVN networks from NetworkAttachmentDefinitions alone",
			"network %s/%s: %s: it is of type %s, which belongs in spec.config", namespace, name, other.File, kind)
	}
	return &other, nil
}

// configFile finds the configuration whose "name" is the NAD's name. Lists come before single configurations, each in
// the order of their files' names. A file that does not parse is skipped.
func configFile(dir, name string) (text, file string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", conf.Errorf(conf.CodeTryAgain, "make the folder on this node, readable for the agent",
			"--nad-conf-dir: %w", err)
	}
	for _, extensions := range [][]string{{".conflist"}, {".conf", ".json"}} {
		for _, e := range entries {
			if e.IsDir() || !slices.Contains(extensions, filepath.Ext(e.Name())) {
				continue
			}
			file := filepath.Join(dir, e.Name())
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			var named struct {
				Name string `json:"name"`
			}
			if json.Unmarshal(text, &named) == nil && named.Name == name {
				return string(text), file, nil
			}
		}
	}
	return "", "", conf.Errorf(conf.CodeNetworkNotFound,
		"put a file there, or write the NetworkAttachmentDefinition's spec.config",
		"no configuration in %s has the name %q", dir, name)
}
