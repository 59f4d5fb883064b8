package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

func (a *Agent) rules(allowed []string) nad.Rules {
	return nad.Rules{Isolated: a.conf.Isolated, Global: a.conf.Global, Allowed: allowed, Compatible: a.conf.Compatible}
}

// getNAD returns a NAD, with the configuration from this node's folder if it has none of its own (multi-net-spec 1.3,
// section 3.4.1).
func (a *Agent) getNAD(ctx context.Context, namespace, name string) (*conf.NAD, error) {
	def, err := a.source.NAD(ctx, namespace, name)
	if err != nil && !errors.Is(err, conf.ErrNotFound) {
		return nil, conf.Errorf(conf.CodeTryAgain, "does the source of NetworkAttachmentDefinitions answer, and is each of its files understood?", "%w", err)
	}
	if err != nil || def.Config != "" {
		return def, err
	}
	if a.conf.NADConfDir == "" {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "write its spec.config, or start the agent with --nad-conf-dir",
			"NetworkAttachmentDefinition %s/%s has no spec.config", namespace, name)
	}
	other := *def
	if other.Config, other.File, err = configFile(a.conf.NADConfDir, name); err != nil {
		return nil, err
	}
	if kind, err := conf.NetworkKind([]byte(other.Config)); err == nil && conf.IsOVN(kind) {
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
