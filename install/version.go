package install

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-multinet/ovn-multinet/internal/cniexec"
)

// raise gives the list the highest version that the runtime speaks, as the operator says, and that every plugin of the chain says
// it speaks: CHECK, STATUS and GC reach us in younger ones only. A plugin that does not say keeps the list as it is, and the
// reason is returned.
func (i *installer) raise(l *list) (why string) {
	if i.CNIVersion == "" {
		return ""
	}
	kinds := append(l.kinds(), PluginName)
	stamp := i.stamp(kinds)
	if stamp != i.common.stamp || i.common.why != "" && time.Since(i.common.asked) > askAgain {
		i.common = i.ask(kinds)
		i.common.stamp, i.common.asked = stamp, time.Now()
	}
	if i.common.why != "" {
		return i.common.why
	}
	var now string
	_ = json.Unmarshal(l.keys["cniVersion"], &now)
	best := now
	for _, v := range i.common.all {
		if !above(v, i.CNIVersion) && above(v, best) {
			best = v
		}
	}
	if best != now {
		l.keys["cniVersion"] = json.RawMessage(strconv.Quote(best))
	}
	return ""
}

// versions are what some plugins say they all speak, or why nobody can tell.
type versions struct {
	stamp string // of the plugins' files when they were asked
	asked time.Time
	all   []string
	why   string
}

// askAgain is when plugins are asked again of which one did not say: a machine that boots is slow.
const askAgain = time.Minute

// stamp changes when one of the plugins' files does.
func (c Config) stamp(kinds []string) string {
	var b strings.Builder
	for _, kind := range kinds {
		if info, err := os.Stat(c.pluginPath(kind)); err == nil {
			fmt.Fprintln(&b, kind, info.Size(), info.ModTime().UnixNano())
		} else {
			fmt.Fprintln(&b, kind, err)
		}
	}
	return b.String()
}

func (c Config) ask(kinds []string) versions {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(c.versionTimeout, versionTimeout))
	defer cancel()
	common := slices.Clone(version.All.SupportedVersions())
	for _, kind := range kinds {
		speaks, err := c.speaks(ctx, kind)
		if err != nil {
			return versions{why: fmt.Sprintf("cniVersion stays, plugin %s does not say what it speaks: %v", kind, err)}
		}
		common = slices.DeleteFunc(common, func(v string) bool { return !slices.Contains(speaks, v) })
	}
	return versions{all: common}
}

func (c Config) pluginPath(kind string) string { return filepath.Join(c.BinDir, filepath.Base(kind)) }

// check refuses what cannot be meant. A version that is none is above none and below none.
func (c Config) check() error {
	if all := version.All.SupportedVersions(); c.CNIVersion != "" && !slices.Contains(all, c.CNIVersion) {
		return fmt.Errorf("--cni-version %q is none of %s", c.CNIVersion, strings.Join(all, ", "))
	}
	return nil
}

// kinds are the plugins that the list runs, and those that they run in turn.
func (l *list) kinds() (all []string) {
	type conf struct {
		Type string                `json:"type"`
		IPAM struct{ Type string } `json:"ipam"`
	}
	for _, p := range l.plugins {
		var c struct {
			conf
			Delegate *conf `json:"delegate"`
		}
		_ = json.Unmarshal(p, &c) // it was read before
		all = append(all, c.Type, c.IPAM.Type)
		if c.Type == flannelType && c.Delegate == nil {
			c.Delegate = &conf{}
		}
		if d := c.Delegate; d != nil {
			all = append(all, cmp.Or(d.Type, "bridge"), cmp.Or(d.IPAM.Type, "host-local")) // Flannel's defaults
		}
	}
	all = slices.DeleteFunc(all, func(kind string) bool { return kind == "" })
	slices.Sort(all)
	return slices.Compact(all)
}

// flannelType is the plugin that runs others without saying which.
const flannelType = "flannel"

// above compares versions; one that is none is below all.
func above(a, b string) bool {
	if b == "" {
		return a != ""
	}
	higher, err := version.GreaterThan(a, b)
	return err == nil && higher
}

// versionTimeout is for some programs that print a line each.
const versionTimeout = 10 * time.Second

// speaks asks a plugin of the node (CNI specification, section 2, VERSION).
func (c Config) speaks(ctx context.Context, kind string) ([]string, error) {
	info, err := invoke.GetVersionInfo(ctx, c.pluginPath(kind), &asker{})
	if ctx.Err() != nil {
		return nil, errors.New("it does not answer")
	}
	if err != nil {
		return nil, err
	}
	return info.SupportedVersions(), nil
}

// asker runs plugins for CNI's library, which would wait for a child of one that hangs.
type asker struct {
	version.PluginDecoder
	invoke.RawExec
}

// ExecPlugin runs a plugin.
func (*asker) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, err := cniexec.Run(ctx, path, stdin, environ, nil)
	if out == nil {
		return nil, err
	}
	return out.Stdout, err
}
