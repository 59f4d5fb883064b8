package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

func (a *Agent) rules(r *agentapi.PlanRequest) nad.Rules {
	return nad.Rules{
		Isolated: a.conf.Isolated, Global: a.conf.Global, Compatible: a.conf.Compatible,
		Allowed: r.AllowedDelegates, AllowedIPAM: append([]string{}, r.AllowedIPAM...), // which is never nil
	}
}

// What plans with delegates take of an agent's memory: making one allocates less than thirty times the text of its
// configurations, which are at most nad.MaxConfigs.
const (
	// maxLarge is how many plans with large configurations are made at once. Others wait.
	maxLarge = 4
	// smallText is how much text of configurations a plan may fetch that never waits, in bytes: a plugin's configuration has a
	// few hundred.
	smallText = 8 << 10
)

// texts gives one plan the configurations that the source does not keep: each is fetched once, and is gone with the plan.
type texts struct {
	agent      *Agent
	selections []nad.Selection
	fetched    map[netmodel.NAD]*netmodel.NAD // by what the source keeps
	size       int                            // of what was fetched, as often as the pod names it
	release    func()                         // nil: the plan is a small one
}

// getNAD is the agent's, with the text of a delegate's configuration.
func (t *texts) getNAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	def, err := t.agent.getNAD(ctx, namespace, name)
	if err != nil || def.Omitted.Size == 0 || def.Omitted.Size > netmodel.MaxDelegateConfig {
		return def, err
	}
	if kind, err := def.Kind(); err != nil || conf.IsOVN(kind) {
		return def, nil // which is refused without its text
	}
	if known := t.fetched[*def]; known != nil {
		return known, nil
	}
	size := def.Omitted.Size
	if err := t.admit(ctx, def, size, size); err != nil {
		return nil, err
	}
	live, err := t.agent.source.LiveNAD(ctx, namespace, name)
	if err != nil {
		return nil, sourceError(err)
	}
	if more := len(live.Config) - size; more > 0 { // the source's copy is older than the text
		if err := t.admit(ctx, def, size+more, more); err != nil {
			return nil, err
		}
	}
	if t.fetched == nil {
		t.fetched = map[netmodel.NAD]*netmodel.NAD{}
	}
	t.fetched[*def] = live
	return live, nil
}

// admit waits until the agent has room for a plan with this text, of that size, and refuses a pod whose texts are over
// their bound. more is what of the size was not admitted before. It waits once in a plan, and so never for a plan that
// waits for this one.
func (t *texts) admit(ctx context.Context, def *netmodel.NAD, size, more int) error {
	for _, known := range t.fetched {
		size += len(known.Config)
	}
	if size > nad.MaxConfigs {
		return nad.TooMuch(size)
	}
	for i := range t.selections {
		if t.selections[i].Namespace == def.Namespace && t.selections[i].Name == def.Name {
			t.size += more // with cni-args or a device each has a text of its own
		}
	}
	if t.release != nil || t.size <= smallText {
		return nil
	}
	if err := t.agent.large.Acquire(ctx, 1); err != nil {
		return conf.Errorf(conf.CodeTryAgain, "it goes on when those are made", "%d other pods of this node have networks with large configurations: %w", maxLarge, err)
	}
	t.release = func() { t.agent.large.Release(1) }
	return nil
}

// done gives the room to the next plan.
func (t *texts) done() {
	if t.release != nil {
		t.release()
	}
}

func sourceError(err error) error {
	if errors.Is(err, netmodel.ErrNotFound) {
		return err
	}
	return conf.Errorf(conf.CodeTryAgain, "does the source of NetworkAttachmentDefinitions answer, and is each of its files understood?", "%w", err)
}

// getNAD returns a NAD, with the configuration from this node's folder if it has none of its own (multi-net-spec 1.3,
// section 3.4.1).
func (a *Agent) getNAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	def, err := a.source.NAD(ctx, namespace, name)
	if err != nil {
		return nil, sourceError(err)
	}
	if def.Config != "" || def.Omitted.Size > 0 {
		return def, nil
	}
	if a.conf.NADConfDir == "" {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "write its spec.config, or start the agent with --nad-conf-dir",
			"NetworkAttachmentDefinition %s/%s has no spec.config", namespace, name)
	}
	other := *def
	if other.Config, other.File, err = configFile(a.conf.NADConfDir, name); err != nil {
		return nil, err
	}
	if kind, err := netmodel.NetworkKind([]byte(other.Config)); err == nil && conf.IsOVN(kind) {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "the controller makes OVN networks from NetworkAttachmentDefinitions alone",
			"network %s/%s: %s: it is of type %s, which belongs into spec.config", namespace, name, other.File, kind)
	}
	return &other, nil
}

// configFile finds the configuration whose "name" is the NAD's: lists come before single configurations, each in the
// order of their files' names. A file that does not parse is its owner's trouble alone.
func configFile(dir, name string) (text, file string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", conf.Errorf(conf.CodeTryAgain, "make the folder on this node, readable for the agent", "--nad-conf-dir: %w", err)
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
	return "", "", conf.Errorf(conf.CodeNetworkNotFound, "put a file there, or write the NetworkAttachmentDefinition's spec.config",
		"no configuration in %s has the name %q", dir, name)
}
