//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// controllerMetrics is where our controller serves its metrics, in the network namespace of the agent's node.
const controllerMetrics = "127.0.0.1:9411"

// policySite is a node with an API server and many tenants. Only one of the tenants' nodes exists: its ports are on the real
// node. NB has the ports of all their pods.
type policySite struct {
	*site
	mix        mix
	network    *netmodel.Network
	nb         *ovndbtest.Server
	agent      *system
	controller *lab.Process
	// The agent and the controller reach NB through these proxies, which count.
	agentNB, controllerNB *ovndbtest.Proxy
	config                string            // the file of the controller's --config
	edits                 int               // of that file
	keys                  map[string]string // of the tenants' ports, by "<namespace>/<pod>"
}

func newPolicySite(t *testing.T, m mix) *policySite {
	s := &policySite{site: &site{Test: labtest.New(t, 2*patience)}, mix: m, keys: map[string]string{}}
	s.Cluster = kube.Start(t, kube.Options{Nodes: 1, CNIVersion: "1.0.0", ControlPlane: true})
	s.node, s.network = s.Lab.Nodes[0], parse(t, portsNetwork)
	s.nb = ovndbtest.AttachNB(t, s.NBSocket())
	s.Must(s.Apply(s.Ctx, kube.ClusterPolicyKind))
	s.create(s.frame()...)
	s.Must(s.Apply(s.Ctx, labtest.Manifest(portsNetwork, portsConfig)))
	s.agentNB, s.controllerNB = ovndbtest.StartProxy(t, "unix:"+s.NBSocket()), ovndbtest.StartProxy(t, "unix:"+s.NBSocket())
	s.agentNB.Ignore(byTheClock(s.node.Name))
	s.config = filepath.Join(s.node.Dir, "config.yaml")
	s.editConfig()
	var pods []object
	for i := range m.pods {
		pods = append(pods, m.pod(i))
	}
	uids := s.create(pods...) // before the controller needs the API server for its Lease
	s.startController()
	s.agent = s.startAgentOn(s.through(s.agentNB), "--early-ports=false", "--reconcile-period=1h",
		"--global-namespaces=shop")
	s.Eventually(func() error {
		p := s.newPod("shop", "first", "none")
		_, err := p.Add(s.Ctx) // the network needs a moment
		s.Must(p.Del(s.Ctx))
		s.endPod(p)
		return err
	})
	s.attachAll(pods, uids)
	return s
}

// frame has what a cluster has before its pods.
func (s *policySite) frame() (all []object) {
	namespaces := []object{}
	for _, name := range []string{"shop", "ovn-multinet"} { // the second one is of the controller's Lease
		namespaces = append(namespaces, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}})
	}
	for i := range s.mix.namespaces {
		namespaces = append(namespaces, s.mix.namespace(i))
	}
	s.create(namespaces...)
	for _, n := range namespaces {
		all = append(all, account(n.name()))
	}
	for i := range s.mix.nodes {
		all = append(all, object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": s.mix.nodeName(i)}})
	}
	return append(all, object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": s.node.Name}})
}

// account is what pods of a namespace need.
func account(namespace string) object {
	return object{"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
		"metadata": object{"namespace": namespace, "name": "default"}}
}

func (s *policySite) through(p *ovndbtest.Proxy) []string {
	return []string{"--nb-endpoints", p.Endpoint()}
}

func (s *policySite) startController() {
	// Passes over orphans are not those of policies.
	s.controller = s.runOn(s.through(s.controllerNB), "ovn-multinet-controller", s.node.NetNS, "--config", s.config,
		"--metrics-address", controllerMetrics, "--orphan-period=24h", "--global-namespaces=shop")
}

// editConfig changes the operator's configuration, which makes the controller pass over everything.
func (s *policySite) editConfig() {
	s.edits++
	text := fmt.Sprintf("securityProfiles:\n  profile-%d: {namespaces: [none]}\n", s.edits)
	s.Must(os.WriteFile(s.config, []byte(text), 0o644))
}

// request sends a request to the API server.
func (s *policySite) request(verb, path, contentType string, body any) []byte {
	raw, err := s.Client.CoreV1().RESTClient().Verb(verb).AbsPath(path).SetHeader("Content-Type", contentType).
		SetHeader("Accept", "application/json").Body(s.JSON(body)).Do(s.Ctx).Raw()
	s.Must(err)
	return raw
}

// create creates objects and returns their UIDs.
func (s *policySite) create(objects ...object) []string {
	uids := make([]string, len(objects))
	var all errgroup.Group
	all.SetLimit(8)
	for i, o := range objects {
		all.Go(func() error {
			var made struct{ Metadata struct{ UID string } }
			s.Must(json.Unmarshal(s.request("POST", o.path(), "application/json", o), &made))
			uids[i] = made.Metadata.UID
			return nil
		})
	}
	s.Must(all.Wait())
	return uids
}

func (s *policySite) patch(o object, patch object) {
	s.request("PATCH", o.path()+"/"+o.name(), string(types.MergePatchType), patch)
}

func (s *policySite) delete(o object) {
	s.request("DELETE", o.path()+"/"+o.name(), "application/json", object{"gracePeriodSeconds": 0})
}

// attachAll gives pods their ports, as the agents of their nodes would, and puts the ports of one node on the real node.
func (s *policySite) attachAll(pods []object, uids []string) {
	id, err := s.Client.CoreV1().Namespaces().Get(s.Ctx, "kube-system", metav1.GetOptions{})
	s.Must(err)
	db := labtest.OpenNB(s.T, conf.NB{Endpoints: []string{"unix:" + s.NBSocket()}}, string(id.UID))
	client := ovnport.NewNB(db)
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(200)
	ifaces := []string{"--no-wait"}
	for i, pod := range pods {
		meta, node := pod["metadata"].(object), pod["spec"].(object)["nodeName"].(string)
		o := ovnport.Owner{Namespace: meta["namespace"].(string), Pod: pod.name(), UID: uids[i], Node: node,
			Sandbox: strings.ReplaceAll(uids[i]+uids[i], "-", ""), Chassis: "chassis-of-" + node}
		if node == s.mix.nodeName(0) {
			o.Chassis = s.node.SystemID
			name := fmt.Sprint("other", i)
			ifaces = append(ifaces, "--", "add-port", "br-int", name, "--", "set", "Interface", name, "type=internal",
				fmt.Sprintf("external_ids:iface-id=%q", o.Namespace+"/"+o.Pod+"/net1"), fmt.Sprintf("external_ids:iface-id-ver=%q", o.UID))
		}
		all.Go(func() error {
			ports, err := client.Ensure(s.Ctx, o, []ovnport.Request{{Interface: "net1", Network: s.network}}, nil)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			s.keys[o.Namespace+"/"+o.Pod] = ports[0].UUID
			return nil
		})
	}
	s.Must(all.Wait())
	_, err = s.node.VSCtl(s.Ctx, ifaces...)
	s.Must(err)
	want := s.mix.pods / s.mix.nodes
	s.until(func() error {
		out, err := s.NBCtl(s.Ctx, "--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "up=true")
		if got := len(strings.Fields(out)); err == nil && got < want {
			err = fmt.Errorf("%d of %d ports of the real node are up", got, want)
		}
		return err
	})
}

// newPod makes a pod on the real node. It is not attached yet.
func (s *policySite) newPod(namespace, name, app string) *lab.Pod {
	s.site.pods++
	name = fmt.Sprint(name, "-", s.site.pods)
	uid := s.create(podObject(namespace, name, s.node.Name, app))[0]
	p, err := s.node.NewPod(s.Ctx, namespace, name, map[string]string{labtest.NetworksAnnotation: portsNetwork})
	s.Must(err)
	p.UID = uid
	return p
}

// addInTheEnd calls ADD until it succeeds, as a runtime does: ovn-northd may be too slow for the agent's limit.
func (s *policySite) addInTheEnd(p *lab.Pod) {
	s.Eventually(func() error {
		_, err := p.Add(s.Ctx)
		if err != nil {
			s.T.Log(err)
			err = errors.Join(err, p.Del(s.Ctx))
		}
		return err
	})
}

// endPod ends a pod after its DEL.
func (s *policySite) endPod(p *lab.Pod) {
	s.Must(p.RemoveNetNS())
	s.Must(p.RemoveManifest())
	s.delete(podObject(p.Namespace, p.Name, "", ""))
}

// watched are the processes whose CPU is measured.
var watched = []string{"ovn-northd", "NB's server", "SB's server", "ovn-controller", "our controller", "our agent"}

func (s *policySite) pids() []int {
	return []int{s.Northd.Pid(), s.NB.Pid(), s.SB.Pid(), s.node.OVNController.Pid(), s.controller.Pid(), s.agent.daemon.Pid()}
}

func (s *policySite) cpus() (used []time.Duration) {
	for _, pid := range s.pids() {
		used = append(used, get[time.Duration](s.T)(cpuOf(pid)))
	}
	return used
}

// settle waits until no process does anything any more. It returns when that began.
func (s *policySite) settle() time.Time {
	const step, idle = 500 * time.Millisecond, 20 * time.Millisecond
	before, last := s.cpus(), time.Now()
	for {
		select {
		case <-s.Ctx.Done():
			s.Must(context.Cause(s.Ctx))
		case <-time.After(step):
		}
		now := s.cpus()
		busy := false
		for i := range now {
			busy = busy || now[i]-before[i] > idle
		}
		if !busy {
			return last
		}
		before, last = now, time.Now()
	}
}

// until waits until all is done and a condition is true.
func (s *policySite) until(cond func() error) (last time.Time) {
	for end := time.Now().Add(patience / 2); ; {
		last = s.settle()
		err := cond()
		if err == nil {
			return last
		}
		if time.Now().After(end) {
			s.Must(err)
		}
	}
}

// TestPolicyScale measures network policies of many tenants.
func TestPolicyScale(t *testing.T) {
	m := mix{namespaces: *tenants, pods: 50 * *tenants, nodes: max(1, *tenants/2)}
	w := Here(t.Context())
	p := report(t, "60-policies-"+w.OVN, "Network policies, OVN "+w.OVN, fmt.Sprintf(`%d pods with one port each, on one network,
in %d namespaces. Each namespace has %d MultiNetworkPolicies: deny all ingress, allow the namespace, allow pods of the namespaces
with a label (a tenth of all), allow addresses with ports, and restrict egress. There are 5 ClusterNetworkPolicies, three of which
are for all pods or all databases. The pods are objects of a real API server. Their ports were leased by the agents' own code. One
node is real, and has %d of the ports; ports of %d other nodes have no chassis. NB is behind a proxy that counts, without TLS.`,
		m.pods, m.namespaces, tenantPolicies, m.pods/m.nodes, m.nodes-1))
	s := newPolicySite(t, m)
	before := s.sizes()
	var bare, with effects
	s.podsComeAndGo(&bare)
	bare.add("nothing", s.effect(func() {}, nil))

	with.add("the first policy: one for all pods", s.effect(func() { s.create(m.operators()[0]) }, s.acls("monitoring", 1)))
	with.add("4 ClusterNetworkPolicies more", s.effect(func() { s.create(m.operators()[1:]...) }, s.acls("outside", 1)))
	var policies []object
	for i := range m.namespaces {
		policies = append(policies, m.tenant(i)...)
	}
	with.add(fmt.Sprintf("%d MultiNetworkPolicies", len(policies)), s.effect(func() { s.create(policies...) }, s.accepted(len(policies))))
	after := s.sizes()
	p.Rows = append(p.Rows, sizeRows(before, after)...)
	p.Rows = append(p.Rows, Number("heap of our controller", "MB", []float64{s.heap()}, 0))
	s.podsComeAndGo(&with)
	s.tenantsChange(&with)
	var passed func() error
	with.add("the 5-minute pass", s.effect(func() {
		passed = s.passed() // not earlier: the controller may make a pass before
		s.editConfig()
	}, func() error { return passed() }))
	with.add("a controller's start", s.effect(func() {
		s.Must(s.controller.Stop(s.Ctx))
		s.startController()
	}, nil))
	p.Rows = append(p.Rows, Number("peak of our controller's memory after its start", "MB",
		[]float64{get[float64](t)(peak(s.controller.Pid()))}, 0))
	p.Notes = append(p.Notes, "Medians of what a change costs until all programs are done with it. The last columns are seconds of CPU.",
		bare.table("Without policies:"), with.table("With the policies:"))
}

// scaleTurns is how often each change is made.
func scaleTurns() int { return max(3, *turns/4) }

// podsComeAndGo measures pods that come and go.
func (s *policySite) podsComeAndGo(all *effects) {
	add := func(what string, p *lab.Pod) {
		all.add(what, s.effect(func() {
			s.addInTheEnd(p)
		}, nil))
	}
	del := func(what string, p *lab.Pod) {
		all.add(what, s.effect(func() {
			s.Must(p.Del(s.Ctx))
			s.endPod(p)
		}, nil))
	}
	for i := range scaleTurns() {
		namespace := s.mix.namespaceName(3 + teams*i)
		first, second := s.newPod(namespace, "web", "web"), s.newPod(namespace, "web", "web")
		add("the node's first ADD of a namespace", first)
		add("ADD", second)
		del("DEL", first)
		s.Must(second.Del(s.Ctx))
		s.endPod(second)
	}
}

// tenantsChange measures what tenants change.
func (s *policySite) tenantsChange(all *effects) {
	group := func(namespace string, of policy.Selector) string {
		return ovndb.GroupKey(portsNetwork, namespace, of.String())
	}
	for i := range scaleTurns() {
		tenant := 4 + teams*i
		name := s.mix.namespaceName(tenant)
		pod := s.mix.pod(tenant * s.mix.pods / s.mix.namespaces) // with app=web
		key := s.keys[name+"/"+pod.name()]
		all.add("a pod's label app", s.effect(func() {
			s.patch(pod, object{"metadata": object{"labels": object{"app": "db"}}})
		}, s.member(group(name, policy.Selector{Pods: "app=db"}), key, true)))
		extra := tenantPolicy(name, "extra", object{"podSelector": object{"matchLabels": object{"app": "web"}},
			"ingress": []any{object{"from": []any{object{"podSelector": object{"matchLabels": object{"app": "cache"}}}}}}})
		all.add("one policy more", s.effect(func() { s.create(extra) }, s.acls(name+"/extra", 2)))
		all.add("the policy deleted", s.effect(func() { s.delete(extra) }, s.acls(name+"/extra", 0)))
		next := s.mix.team(tenant + 1)
		all.add("a namespace's label team", s.effect(func() {
			s.patch(s.mix.namespace(tenant), object{"metadata": object{"labels": object{"team": next}}})
		}, s.member(group(s.mix.namespaceName(tenant+1),
			policy.Selector{Anywhere: true, Namespaces: "team=" + next, Pods: "app=web"}), s.keys[name+"/pod-3"], true)))
		fresh := object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{
			"name": fmt.Sprint("fresh-", i), "labels": object{"team": s.mix.team(i)}}}
		all.add("a new namespace", s.effect(func() { s.create(fresh); s.create(account(fresh.name())) }, func() error {
			_, err := s.NBCtl(s.Ctx, "get", "Copp", ovndb.NamespaceKey(fresh.name()), "name")
			return err
		}))
		p := s.newPod(fresh.name(), "web", "web")
		all.add("its first ADD", s.effect(func() {
			s.addInTheEnd(p)
		}, nil))
		s.Must(p.Del(s.Ctx))
		s.endPod(p)
	}
}
