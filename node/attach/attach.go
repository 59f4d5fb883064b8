package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/cniexec"
)

// Config says where the node's files are. All paths are the node's.
type Config struct {
	NetDir  string // the runtime's folder of CNI configurations, with our conflist
	BinDir  string // the runtime's folder of CNI plugins; several: a list with colons
	Cache   string // the folder in which the runtime keeps the results of its CNI calls
	Socket  string // the agent's
	Workers int    // how many pods may change at once
}

const (
	// asks is how long one question to the agent waits for a pod.
	asks = 30 * time.Second
	// pause is the pause after an agent that does not answer.
	pause = time.Second
)

// Run asks the agent for pods and runs the plugin for each, until the end of ctx. It waits for the plugin's runs.
func Run(ctx context.Context, c Config, log *slog.Logger) error {
	var workers errgroup.Group
	for range c.Workers {
		workers.Go(func() error { c.work(ctx, log); return nil })
	}
	return workers.Wait()
}

// work is one of the workers.
func (c Config) work(ctx context.Context, log *slog.Logger) {
	agent := &agentapi.Client{Socket: c.Socket}
	defer agent.Close()
	request := agentapi.NextChangeRequest{}
	for silent := false; ctx.Err() == nil; {
		next := agentapi.NextChange{}
		asking, cancel := context.WithTimeout(ctx, asks)
		err := agent.Call(asking, agentapi.OpNextChange, request, &next)
		cancel()
		if err != nil {
			if !silent && ctx.Err() == nil {
				log.Warn("the agent does not answer", "err", conf.Brief(err))
			}
			silent = true
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			continue
		}
		silent, request.Ended = false, nil
		if next.Change == nil {
			continue
		}
		began := time.Now()
		err = c.change(next.Change)
		end := &agentapi.ChangeEnded{Sandbox: *next.Change}
		of := log.With("pod", next.Change.Namespace+"/"+next.Change.Pod, "took", time.Since(began).Round(time.Millisecond))
		if err != nil {
			end.Error = agentapi.NewError(err)
			of.Warn("the networks of a running pod are not changed", "err", conf.Brief(err))
		} else {
			of.Info("changed the networks of a running pod")
		}
		request.Ended = end
	}
}

// change runs the plugin for one sandbox.
func (c Config) change(s *agentapi.Sandbox) error {
	entry, name, err := c.entry()
	if err != nil {
		return err
	}
	env := []string{"CNI_CONTAINERID=" + s.ContainerID, "CNI_IFNAME=" + s.Interface}
	if s.ContainerID == "" { // it started without us
		found, err := c.find(s, name)
		if err != nil {
			return err
		}
		entry["prevResult"] = found.Result
		env = []string{
			"CNI_CONTAINERID=" + found.ContainerID, "CNI_IFNAME=" + found.IfName,
			"CNI_NETNS=" + found.netns(), "CNI_ARGS=" + found.args(),
		}
	}
	stdin, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	return c.run(stdin, append(env, "CNI_COMMAND="+conf.ChangeCommand, "CNI_PATH="+c.BinDir))
}

// run runs the plugin, and returns the error that it prints.
func (c Config) run(stdin []byte, env []string) error {
	path, err := invoke.FindInPath(conf.NetworkType, filepath.SplitList(c.BinDir))
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "the installer puts it there", "the plugin: %w", err)
	}
	out, err := cniexec.Run(context.Background(), path, stdin, append(os.Environ(), env...), nil)
	if err == nil {
		return nil
	}
	said := ""
	if out != nil {
		printed := &agentapi.Error{}
		if json.Unmarshal(out.Stdout, printed) == nil && printed.Code != 0 {
			return printed.Err(false)
		}
		said = conf.OneLine(string(out.Stderr), 512)
	}
	return conf.Errorf(conf.CodeTryAgain, "is the plugin of this node's version installed?", "run %s: %w: %s",
		path, err, said)
}

// entry reads our entry of the node's conflist, as the runtime gives it to the plugin, and the conflist's name.
func (c Config) entry() (entry map[string]any, name string, err error) {
	path := filepath.Join(c.NetDir, conf.ConflistName)
	text, err := os.ReadFile(path)
	list := struct {
		Name       string           `json:"name"`
		CNIVersion string           `json:"cniVersion"`
		Plugins    []map[string]any `json:"plugins"`
	}{}
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, "", conf.Errorf(conf.CodeTryAgain, "the installer writes it", "read the node's conflist: %w", err)
	}
	for _, p := range list.Plugins {
		if p["type"] == conf.NetworkType {
			p["name"], p["cniVersion"] = list.Name, list.CNIVersion
			return p, list.Name, nil
		}
	}
	return nil, "", conf.Errorf(conf.CodeTryAgain, "the installer writes it",
		"%s does not chain %s", path, fmt.Sprintf("%q", conf.NetworkType))
}
