package attach

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// attachment is what the runtime has written about the sandbox of a pod: libcni, which containerd and CRI-O link, keeps
// the result of each ADD in a file until the DEL.
type attachment struct {
	ContainerID string          `json:"containerId"`
	IfName      string          `json:"ifName"`
	NetworkName string          `json:"networkName"`
	NetNS       string          `json:"netns"` // libcni before 1.2 does not write it
	Args        [][2]string     `json:"cniArgs"`
	Result      json.RawMessage `json:"result"`
}

// find returns the sandbox of a pod that the journal does not have: the pod named no networks when it started,
// or it started before us.
func (c Config) find(s *agentapi.Sandbox, network string) (*attachment, error) {
	dir := filepath.Join(c.Cache, "results")
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, conf.Errorf(conf.CodeTryAgain, "", "the runtime's results: %w", err)
	}
	var found []*attachment
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), network+"-") {
			continue
		}
		a := readAttachment(filepath.Join(dir, f.Name()))
		if a == nil || a.NetworkName != network || !a.is(s) {
			continue
		}
		if _, err := os.Stat(a.netns()); err == nil { // a sandbox whose DEL failed has none
			found = append(found, a)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
	default:
		return nil, conf.Errorf(conf.CodeTryAgain, "the runtime is about to delete one of them",
			"the container runtime has %d sandboxes of the pod", len(found))
	}
	return nil, conf.Errorf(conf.CodeTryAgain, "delete the pod, so that it is made again",
		"the container runtime has no result of the pod's first network in %s, so nobody knows its network namespace", dir)
}

func readAttachment(path string) *attachment {
	text, err := os.ReadFile(path)
	a := &attachment{}
	if err != nil || json.Unmarshal(text, a) != nil || a.ContainerID == "" || a.IfName == "" {
		return nil
	}
	return a
}

// is reports whether the sandbox is that of the pod. The runtime's UID of a static pod is not that of the API.
func (a *attachment) is(s *agentapi.Sandbox) bool {
	uid := a.arg("K8S_POD_UID")
	return a.arg("K8S_POD_NAMESPACE") == s.Namespace && a.arg("K8S_POD_NAME") == s.Pod && (uid == "" || uid == s.UID)
}

func (a *attachment) arg(key string) string {
	for _, pair := range a.Args {
		if pair[0] == key {
			return pair[1]
		}
	}
	return ""
}

// args are CNI_ARGS as the ADD got them.
func (a *attachment) args() string {
	pairs := make([]string, len(a.Args))
	for i, pair := range a.Args {
		pairs[i] = pair[0] + "=" + pair[1]
	}
	return strings.Join(pairs, ";")
}

// netns is the path of the pod's network namespace: the plugins say in which namespace they made its interface.
func (a *attachment) netns() string {
	if a.NetNS != "" {
		return a.NetNS
	}
	result, err := create.CreateFromBytes(a.Result)
	if err != nil {
		return ""
	}
	known, err := types100.GetResult(result)
	if err != nil {
		return ""
	}
	for _, i := range known.Interfaces {
		if i != nil && i.Name == a.IfName && i.Sandbox != "" {
			return i.Sandbox
		}
	}
	return ""
}
