//go:build kube

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// ourSlices are our EndpointSlices of a Service, or of all Services of a namespace.
func (w *world) ourSlices(namespace, of string, more ...string) []discoveryv1.EndpointSlice {
	selector := append(more, discoveryv1.LabelManagedBy+"="+service.ProxyName)
	if of != "" {
		selector = append(selector, discoveryv1.LabelServiceName+"="+of)
	}
	list, err := w.Client.DiscoveryV1().EndpointSlices(namespace).List(w.Ctx,
		metav1.ListOptions{LabelSelector: strings.Join(selector, ",")})
	w.Must(err)
	return list.Items
}

// sliceTexts is what our slices of a Service, or of all Services of a namespace, say: one line each.
func (w *world) sliceTexts(namespace, of string) string {
	var lines []string
	for _, s := range w.ourSlices(namespace, of) {
		text, err := json.Marshal([]any{s.Name, s.Labels, s.OwnerReferences, s.AddressType, s.Endpoints, s.Ports})
		w.Must(err)
		lines = append(lines, string(text))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// slicesRepaired: what a tenant does to our slices is undone. kube-proxy watches none of them, by its own filter.
func (w *world) slicesRepaired() {
	// cmd/kube-proxy/app/server.go of Kubernetes
	const watched = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless"
	for _, of := range []string{"web", "front"} {
		if got, all := w.ourSlices("default", of, watched), w.ourSlices("default", of); len(got) != 0 || len(all) != 2 {
			w.T.Errorf("of %d slices of Service %s, kube-proxy watches %d", len(all), of, len(got))
		}
	}
	api := w.Client.DiscoveryV1().EndpointSlices("default")
	patch := func(name, body string) {
		_, err := api.Patch(w.Ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		w.Must(err)
	}
	for _, of := range []string{"web", "front"} {
		before := w.sliceTexts("default", of)
		name := of + "-ovn-multinet-ipv4-0"
		for what, do := range map[string]func(){
			"edited":      func() { patch(name, `{"endpoints":[{"addresses":["10.1.66.66"]}]}`) },
			"for a proxy": func() { patch(name, `{"metadata":{"labels":{"service.kubernetes.io/headless":null}}}`) },
			"orphaned":    func() { patch(name, `{"metadata":{"ownerReferences":null}}`) },
			"deleted":     func() { w.Must(api.Delete(w.Ctx, name, metav1.DeleteOptions{})) },
			"another": func() {
				more, err := api.Get(w.Ctx, name, metav1.GetOptions{})
				w.Must(err)
				more.ObjectMeta = metav1.ObjectMeta{Name: "mine", Labels: more.Labels}
				_, err = api.Create(w.Ctx, more, metav1.CreateOptions{})
				w.Must(err)
			},
		} {
			do()
			w.until(func() error {
				if now := w.sliceTexts("default", of); now != before {
					return fmt.Errorf("%s: the slices of %s are\n%s\nand were\n%s", what, of, now, before)
				}
				return nil
			})
		}
	}
	w.namesAnswered()
}

// namesOfAnotherTenant: namespace other gets neither an address of shop's network nor a slice in namespace shop, also if
// it has a network and a pod of the same names.
func (w *world) namesOfAnotherTenant() {
	on := func(name, annotations string) string {
		return strings.Replace(serviceOn(name, 8080, annotations, ""), "default/blue", "shop/red", 1)
	}
	objects := map[string]string{}
	for _, namespace := range []string{"shop", "other"} {
		w.kubectl("create", "namespace", namespace)
		w.Must(w.WaitAccount(w.Ctx, namespace))
		p := strings.Replace(webPod(namespace+"/p", "node2", ""), "'blue'", "'red'", 1)
		objects[namespace] = nad(namespace+"/red", `{"type":"ovn-multinet","subnets":"10.9.0.0/16"}`) + p
	}
	objects["shop"] += on("shop/web", "") + on("shop/front", virtualAt("10.9.255.200"))
	w.Must(w.Apply(w.Ctx, objects["shop"]+objects["other"]))
	w.Must(w.WaitReady(w.Ctx, "shop/p", "other/p"))
	w.eventOf("shop/web", "Normal", "ServiceReady", "shop/red")
	w.eventOf("shop/front", "Normal", "ServiceReady", "shop/red")
	w.answers("A", "web.shop.svc.cluster.local.", statusOf(w, w.getPod("shop/p"))[1].IPs[0])
	w.answers("A", "front.shop.svc.cluster.local.", "10.9.255.200")
	before, services := w.sliceTexts("shop", ""), ""
	for name, a := range map[string]string{
		"web": "", "front": virtualAt("10.9.255.200"), "next": virtualAt("10.9.255.201"), "any": virtualAt("auto"),
	} {
		services += on("other/"+name, a)
		w.Must(w.Apply(w.Ctx, on("other/"+name, a)))
		w.eventOf("other/"+name, "Warning", "ServiceRefused", "a Service on a network of another namespace needs one")
		if rows := w.serviceRows("other/" + name); len(rows) > 0 {
			w.T.Errorf("NB has of Service other/%s: %q", name, rows)
		}
	}
	// Slices in our name, for the Services of namespace shop, are of namespace other all the same.
	w.Must(w.Apply(w.Ctx, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: front-ovn-multinet-ipv4-0
  namespace: other
  labels: {kubernetes.io/service-name: front, endpointslice.kubernetes.io/managed-by: ovn-multinet}
addressType: IPv4
endpoints: [{addresses: [10.9.66.66]}]
ports: [{name: http, port: 80}]
`))
	w.until(func() error {
		if got := w.ourSlices("other", ""); len(got) > 0 {
			return fmt.Errorf("namespace other has slices in our name: %+v", got)
		}
		return nil
	})
	if now := w.sliceTexts("shop", ""); now != before {
		w.T.Errorf("the slices of namespace shop are\n%s\nand were\n%s", now, before)
	}
	w.answers("A", "any.other.svc.cluster.local.")
	w.answers("A", "front.shop.svc.cluster.local.", "10.9.255.200")
	w.Must(w.Delete(w.Ctx, services+objects["shop"]+objects["other"]))
	w.kubectl("delete", "namespace", "other", "shop")
}

// serviceRows are the rows that NB has of a Service: load balancers, what is accepted, and claims.
func (w *world) serviceRows(id string) (names []string) {
	for _, table := range []string{"Load_Balancer", "Copp"} {
		rows, err := tableOf(w.NBCtl(w.Ctx, "--format=json", "--columns=name,external_ids", "list", table))
		w.Must(err)
		for _, row := range rows {
			ids := row.ids("external_ids")
			if ids["ovn-multinet/service"] == id || ids[ovndb.ClaimantPrefix+"service "+id] != "" {
				names = append(names, row.text("name"))
			}
		}
	}
	return names
}

// namesWithoutAPI: while the API server is down, names are answered, and connections to the virtual address go on.
func (w *world) namesWithoutAPI() {
	do, began, load := w.inPod("client"), time.Now(), w.connects()
	load.More(20)
	w.Must(w.APIServer.Kill())
	load.More(100)
	code, addresses, err := w.ask(do, frontName)
	if err != nil || code != dnsmessage.RCodeSuccess || !slices.Equal(addresses, []string{front4}) {
		w.T.Errorf("without the API server, %s is %q, %s, %v", frontName, addresses, code, err)
	}
	w.Must(w.APIServer.Restart(w.Ctx))
	load.More(100)
	load.Over("the API server is down", began)
	w.namesAnswered()
}

// namesWithNextLeader: the controller that leads is killed. The next one changes nothing.
func (w *world) namesWithNextLeader() {
	leader := w.leader()
	before, holder := w.served(), *w.lease(nil).Spec.HolderIdentity
	began, load := time.Now(), w.connects()
	w.signal(leader, "SIGKILL")
	w.until(func() error {
		if now := w.lease(nil).Spec.HolderIdentity; now == nil || *now == "" || *now == holder {
			return fmt.Errorf("the Lease is %s's still, whose process was killed", holder)
		}
		return nil
	})
	late := serviceOn("late", 80, virtualAt("auto"), "")
	w.Must(w.Apply(w.Ctx, late)) // the leader has seen all Services when it has seen this one
	w.eventOf("late", "Normal", "ServiceReady", "default/blue")
	w.Must(w.Delete(w.Ctx, late))
	w.serviceGone("late")
	if now := w.served(); now != before {
		w.T.Errorf("the next leader has made\n%s\nof\n%s", now, before)
	}
	load.More(100)
	load.Over("the controller is killed", began)
	w.namesAnswered()
}

// served is what API server and NB have of the Services of namespace default, with each change.
func (w *world) served() string {
	var lines []string
	for _, s := range w.ourSlices("default", "") {
		lines = append(lines, fmt.Sprint(s.Name, " ", s.UID, " ", s.ResourceVersion))
	}
	list, err := w.Client.CoreV1().Services("default").List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	for _, s := range list.Items {
		lines = append(lines, fmt.Sprint(s.Name, " ", s.ResourceVersion))
	}
	for _, table := range []string{"Load_Balancer", "Load_Balancer_Group", "Logical_Router", "Copp"} {
		for line := range strings.Lines(w.nbctl("--format=csv", "--no-headings", "list", table)) {
			if !slices.ContainsFunc([]string{"port-list", "ended-connections", `""=node`, `""=mtu`}, func(kind string) bool {
				return strings.Contains(line, kind)
			}) {
				lines = append(lines, line)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// namesAfterPod: pod a is deleted.
func (w *world) namesAfterPod() {
	b := w.netIPs("b")
	w.Must(w.Delete(w.Ctx, webPod("a", "node1", "")))
	w.answers("host", "web", b...)
	w.answers("A", "first."+webName)
	w.answers("A", frontName, front4)
	w.nbctl("--wait=hv", "sync")
	began, load := time.Now(), w.connects()
	load.More(100)
	load.Over("a pod is deleted, and the nodes know it", began)
}

// namesAfterLabel: Service front is ours no more, and is ours again.
func (w *world) namesAfterLabel() {
	if rows := w.serviceRows("default/front"); len(rows) != 4 {
		w.T.Errorf("of Service front NB has %q, want a load balancer, what is accepted, and two claims", rows)
	}
	w.kubectl("label", "service", "front", service.ProxyLabel+"-")
	w.serviceGone("front")
	w.nameGone(w.inPod("client"), frontName)
	w.nbctl("--wait=hv", "sync")
	if out, err := w.Exec(w.Ctx, "default/client", "main", "/podtool", "get", "http://"+front4+"/hostname"); err == nil {
		w.T.Errorf("at the virtual address of a Service that is not ours any more, %q answers", out)
	}
	w.answers("host", "web", w.netIPs("b")...)
	w.kubectl("label", "service", "front", service.ProxyLabel+"="+service.ProxyName)
	w.answers("host", "front", front4, front6)
}

// serviceGone waits until neither slices nor rows of a Service are there.
func (w *world) serviceGone(name string) {
	w.until(func() error {
		if got, rows := w.ourSlices("default", name), w.serviceRows("default/"+name); len(got)+len(rows) > 0 {
			return fmt.Errorf("of Service %s there are the rows %q and the slices %+v", name, rows, got)
		}
		return nil
	})
}

// nameGone waits until CoreDNS answers that a name does not exist.
func (w *world) nameGone(do func(func() error) error, name string) {
	w.until(func() error {
		code, got, err := w.ask(do, name)
		if err == nil && (code != dnsmessage.RCodeNameError || len(got) > 0) {
			err = fmt.Errorf("%s: %s %q, want that the name does not exist", name, code, got)
		}
		return err
	})
}

// namesAfterService: the Services are deleted, and their names do not exist.
func (w *world) namesAfterService() {
	do := w.inPod("client")
	for short, name := range map[string]string{"web": webName, "front": frontName} {
		if code, got, err := w.ask(do, name); err != nil || code != dnsmessage.RCodeSuccess || len(got) != 1 {
			w.T.Errorf("%s: %s %q, %v; want one address", name, code, got, err)
		}
		w.kubectl("delete", "service", short)
		w.nameGone(do, name)
		w.serviceGone(short)
	}
	for _, table := range []string{"Load_Balancer", "Load_Balancer_Group", "Logical_Router"} {
		if names := w.rows(table, "name"); len(names) > 0 {
			w.T.Errorf("without Services, %s has %q", table, names)
		}
	}
}

// The images of the example.
var (
	busybox = regexp.MustCompile(`image: busybox\n    command: .*`)
	coreDNS = regexp.MustCompile(`image: registry.k8s.io/coredns/.*`)
)

// resolverOfNetwork: the example with a resolver, by the lab's images. Its client has no other name server.
func (w *world) resolverOfNetwork() {
	root, err := lab.ModuleRoot()
	w.Must(err)
	var all []string
	for _, f := range w.Glob(filepath.Join(root, "examples", "dns", "*.yaml")) {
		all = append(all, string(w.Read(f)))
	}
	text := strings.Join(all, "---\n")
	text = busybox.ReplaceAllString(text, "image: "+kube.PodtoolImage+"\n    imagePullPolicy: Never\n    args: [serve]")
	text = coreDNS.ReplaceAllString(text, "image: "+kube.CoreDNSImage+"\n        imagePullPolicy: Never")
	// kubelets of the lab do not know the cluster's DNS.
	text = strings.Replace(text, "      containers:\n",
		"      dnsPolicy: None\n      dnsConfig: {nameservers: ["+kube.NameServer+"]}\n      containers:\n", 1)
	w.kubectl("create", "namespace", "examples")
	w.Must(w.WaitAccount(w.Ctx, "examples"))
	w.Must(w.Apply(w.Ctx, text))
	w.kubectl("--namespace=examples", "rollout", "status", "--timeout=5m", "deployment/dns")
	w.Must(w.WaitReady(w.Ctx, "examples/dns-web", "examples/dns-client"))
	web := statusOf(w, w.getPod("examples/dns-web"))[1].IPs
	const client, name = "examples/dns-client", "dns-web.examples.svc.cluster.local"
	w.answersTo(client, "host", "dns-web", web...)
	if got := w.exec(client, "", "/podtool", "get", "http://dns-web:8080/hostname"); got != "dns-web" {
		w.T.Errorf("at dns-web, %q answers", got)
	}
	if out, err := w.Exec(w.Ctx, client, "", "/podtool", "lookup", "kubernetes.default.svc.cluster.local."); err == nil {
		w.T.Errorf("a name of another namespace is answered with %q, want that it is refused", out)
	}
	do := w.inPod(client)
	dial := func(context.Context, string, string) (c net.Conn, err error) {
		err = do(func() (err error) {
			c, err = net.DialTimeout("tcp", "10.32.0.53:53", 5*time.Second)
			return err
		})
		return c, err
	}
	tcp := net.Resolver{PreferGo: true, StrictErrors: true, Dial: dial}
	w.until(func() error {
		got, err := tcp.LookupHost(w.Ctx, name+".")
		if err == nil && !slices.Equal(got, web) {
			err = fmt.Errorf("by TCP, %s is %q, want %q", name, got, web)
		}
		return err
	})
	w.Must(w.Delete(w.Ctx, text))
	w.kubectl("delete", "namespace", "examples")
}
