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

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/cniexec"
)

// raise gives the list the highest CNI version that the runtime (according to the operator) and every plugin of the
// chain speak: a runtime calls CHECK, STATUS and GC only with the newer versions. If a plugin does not answer, raise
// changes nothing and returns the reason.
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
		if !higher(v, i.CNIVersion) && higher(v, best) {
			best = v
		}
	}
	if best != now {
		l.keys["cniVersion"] = json.RawMessage(strconv.Quote(best))
	}
	return ""
}

// versions are the CNI versions that all plugins of a chain speak.
type versions struct {
	stamp string // of the plugins' files when the plugins were asked
	asked time.Time
	all   []string
	why   string // a plugin did not answer, for this reason; "": all did
}

// askAgain is the time after which plugins are asked again if one did not answer: a machine that boots is slow.
const askAgain = time.Minute

// stamp returns a text that changes when the file of one of the plugins changes.
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

// ask returns the versions that all plugins speak.
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

func (c Config) pluginPath(kind string) string { return ProgramPath(c.BinDir, kind) }

// check refuses a CNIVersion that does not exist. Such a version could not be compared with others.
func (c Config) check() error {
	if all := version.All.SupportedVersions(); c.CNIVersion != "" && !slices.Contains(all, c.CNIVersion) {
		return fmt.Errorf("--cni-version %q is none of %s", c.CNIVersion, strings.Join(all, ", "))
	}
	if p := c.Primary; p != "" && (p != filepath.Base(p) || p == conf.ConflistName || strings.HasPrefix(p, ".") ||
		!slices.Contains(extensions, filepath.Ext(p))) {
		const form = "--primary %q is no name of a primary network's file: give one like 10-flannel.conflist, without a folder"
		return fmt.Errorf(form, p)
	}
	return nil
}

// kinds returns the types of the plugins in the list, and of the plugins that they run: IPAM plugins and Flannel's
// delegate.
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
		_ = json.Unmarshal(p, &c) // parseList has checked it
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

// flannelType is the plugin that runs other plugins which its configuration need not name.
const flannelType = "flannel"

// higher reports whether version a is higher than b. No version is lower than every version.
func higher(a, b string) bool {
	if b == "" {
		return a != ""
	}
	is, err := version.GreaterThan(a, b)
	return err == nil && is
}

// versionTimeout is the time for all plugins together to answer VERSION.
const versionTimeout = 10 * time.Second

// speaks asks a plugin for the versions that it speaks (CNI specification, section 2, VERSION).
func (c Config) speaks(ctx context.Context, kind string) ([]string, error) {
	info, err := invoke.GetVersionInfo(ctx, c.pluginPath(kind), &asker{})
	if ctx.Err() != nil {
		return nil, errors.New("no answer in time")
	}
	if err != nil {
		return nil, err
	}
	return info.SupportedVersions(), nil
}

// asker runs plugins for CNI's library, whose own exec would wait for the child process of a plugin that hangs.
type asker struct {
	version.PluginDecoder
	invoke.RawExec
}

// ExecPlugin runs a plugin and returns its standard output.
func (*asker) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, err := cniexec.Run(ctx, path, stdin, environ, nil)
	if out == nil {
		return nil, err
	}
	return out.Stdout, err
}
