package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/dsnet/try"
	"github.com/google/uuid"
	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"
)

const primaryIfName = "eth0"

// Pod is one sandbox of a pod, as the runtime of its node sees it.
type Pod struct {
	Namespace, Name, UID string
	Annotations, Labels  map[string]string
	Ports                []Port
	Meta                 map[string]any // further metadata of the manifest, such as ownerReferences
	Ready                string         // the condition Ready in the manifest, "True" or "False"; "": none
	Phase                string         // in the manifest; "": none
	Node                 *Node
	Sandbox              string // container id: 64 hex digits
	host
}

// Port is a named port of a pod's container.
type Port struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol,omitempty"`
	Number   int    `json:"containerPort"`
}

// NewPod writes a pod's manifest and makes a sandbox for it: a container id and a network namespace with lo
// up. It makes no CNI call.
func (n *Node) NewPod(_ context.Context, namespace, name string, annotations map[string]string) (*Pod, error) {
	p := &Pod{Namespace: namespace, Name: name, UID: uuid.NewString(), Annotations: maps.Clone(annotations), Node: n}
	if err := p.WriteManifest(); err != nil {
		return nil, err
	}
	if err := p.makeSandbox(); err != nil {
		return nil, errors.Join(err, p.RemoveManifest())
	}
	return p, nil
}

// NewSandbox makes the next sandbox of the same pod, as kubelet does when the first has died. Both live until
// they are closed.
func (p *Pod) NewSandbox(context.Context) (*Pod, error) {
	next := *p
	next.Annotations, next.Labels = maps.Clone(p.Annotations), maps.Clone(p.Labels)
	return &next, next.makeSandbox()
}

func (p *Pod) makeSandbox() (err error) {
	id := make([]byte, 32)
	_, _ = rand.Read(id)
	p.Sandbox = hex.EncodeToString(id)
	p.host, err = p.Node.lab.newHost("pod-"+p.Sandbox[:16], p.String(), filepath.Join(p.Node.Dir, "pods"))
	return err
}

// String is the pod's name as people write it.
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

func (p *Pod) manifestName() string { return fmt.Sprintf("pod.%s.%s.yaml", p.Namespace, p.Name) }

// WriteManifest writes the pod's manifest again, after a change of its fields.
func (p *Pod) WriteManifest() error {
	meta := map[string]any{"namespace": p.Namespace, "name": p.Name, "uid": p.UID}
	maps.Copy(meta, p.Meta)
	if len(p.Annotations) > 0 {
		meta["annotations"] = p.Annotations
	}
	if len(p.Labels) > 0 {
		meta["labels"] = p.Labels
	}
	manifest := map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata":   meta,
		"spec": map[string]any{
			"nodeName":   p.Node.Name,
			"containers": []any{map[string]any{"name": "main", "image": "none", "ports": p.Ports}},
		},
	}
	status := map[string]any{}
	if p.Ready != "" {
		status["conditions"] = []any{map[string]any{"type": "Ready", "status": p.Ready}}
	}
	if p.Phase != "" {
		status["phase"] = p.Phase
	}
	if len(status) > 0 {
		manifest["status"] = status
	}
	b, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return p.Node.lab.WriteManifest(p.manifestName(), string(b))
}

// RemoveManifest takes the pod out of the source of pods.
func (p *Pod) RemoveManifest() error { return p.Node.lab.RemoveManifest(p.manifestName()) }

// runtimeConf is what containerd passes for the sandbox.
func (p *Pod) runtimeConf(c *call) *libcni.RuntimeConf {
	capabilities := map[string]any{"portMappings": []any{}}
	if !c.noAnnotations {
		annotations := map[string]string{"kubernetes.io/config.source": "api"}
		maps.Copy(annotations, p.Annotations)
		capabilities[annotationsCapability] = annotations
	}
	netns := p.NetNS
	if c.netns != nil {
		netns = *c.netns
	}
	return &libcni.RuntimeConf{
		ContainerID: p.Sandbox,
		NetNS:       netns,
		IfName:      primaryIfName,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.Namespace},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.Sandbox},
			{"K8S_POD_UID", p.UID},
		},
		CapabilityArgs: capabilities,
	}
}

// Add attaches the sandbox: the whole chain, or our plugin alone with [OnlyOurs].
func (p *Pod) Add(ctx context.Context, opts ...CallOption) (_ *types100.Result, err error) {
	defer try.Handle(&err)
	c := newCall(opts)
	cni, list := try.E2(p.Node.runtime(c))
	result := try.E1(cni.AddNetworkList(ctx, list, p.runtimeConf(c)))
	return types100.NewResultFromResult(result)
}

// Del detaches the sandbox. As from containerd, the netns is "" when it is gone.
func (p *Pod) Del(ctx context.Context, opts ...CallOption) error {
	c := newCall(opts)
	cni, list, err := p.Node.runtime(c)
	if err != nil {
		return err
	}
	rt := p.runtimeConf(c)
	if _, err := os.Stat(p.NetNS); err != nil && c.netns == nil {
		rt.NetNS = ""
	}
	return cni.DelNetworkList(ctx, list, rt)
}

// Check asks the chain whether the sandbox is as Add left it; CNI 0.4.0 and up.
func (p *Pod) Check(ctx context.Context, opts ...CallOption) error {
	c := newCall(opts)
	cni, list, err := p.Node.runtime(c)
	if err != nil {
		return err
	}
	return cni.CheckNetworkList(ctx, list, p.runtimeConf(c))
}

// CachedResult is the result of Add as libcni keeps it, nil when there is none.
func (p *Pod) CachedResult() (types.Result, error) {
	c := newCall(nil)
	cni, list, err := p.Node.runtime(c)
	if err != nil {
		return nil, err
	}
	return cni.GetNetworkListCachedResult(list, p.runtimeConf(c))
}

// RemoveNetNS ends the sandbox's namespace, with all interfaces in it. The kernel takes it apart some time later: this waits
// until the host has none of their other ends. Absent is fine.
func (p *Pod) RemoveNetNS() error {
	ends, err := p.hostEnds()
	if err := errors.Join(err, p.Node.lab.removeNetNS(p.NetNS)); err != nil {
		return err
	}
	return Eventually(context.Background(), func() error {
		return ifThere(p.Node.NetNS, func() error {
			for _, end := range ends {
				_, err := netlink.LinkByName(end)
				if err == nil {
					return fmt.Errorf("the namespace of pod %s is gone, and its host end %s is there", p, end)
				}
				if _, gone := errors.AsType[netlink.LinkNotFoundError](err); !gone {
					return err
				}
			}
			return nil
		})
	})
}

// hostEnds are the names of the links in the host that belong to interfaces of the sandbox.
func (p *Pod) hostEnds() (names []string, err error) {
	peers := map[int]bool{} // by their index there
	err = ifThere(p.Node.NetNS, func() error {
		host, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer host.Close()
		return ifThere(p.NetNS, func() error {
			id, err := netlink.GetNetNsIdByFd(int(host.Fd()))
			if err != nil {
				return err
			}
			links, err := netlinksafe.LinkList()
			for _, l := range links {
				if l.Type() == "veth" && l.Attrs().NetNsID == id {
					peers[l.Attrs().ParentIndex] = true
				}
			}
			return err
		})
	})
	if err != nil || len(peers) == 0 {
		return nil, err
	}
	err = ifThere(p.Node.NetNS, func() error {
		links, err := netlinksafe.LinkList()
		for _, l := range links {
			if l.Type() == "veth" && peers[l.Attrs().Index] {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	return names, err
}

// Close does what the end of a pod does: Del, the namespace, the manifest.
func (p *Pod) Close(ctx context.Context) error {
	return errors.Join(p.Del(ctx), p.RemoveNetNS(), p.RemoveManifest())
}
