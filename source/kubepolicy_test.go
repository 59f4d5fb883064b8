package source

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// policyServer is an API server of policies, pods and namespaces. It speaks HTTP to the real clients.
type policyServer struct {
	mu       sync.Mutex
	unknown  bool // the server does not know the kind of policies
	policies []string
	cluster  []string
	whole    string      // one policy
	events   chan string // of the watch of policies
	patches  []string
	ports    chan string // namespaces with new pods that have named ports
}

func (s *policyServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	defer s.mu.Unlock()
	list := func(kind, version string, items ...string) {
		fmt.Fprintf(rw, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"7"},"items":[%s]}`,
			kind, version, strings.Join(items, ","))
	}
	isPolicies := strings.Contains(r.URL.Path, "/multi-networkpolicies")
	switch {
	case r.Method == http.MethodGet && r.URL.Path == clusterPath && r.URL.Query().Get("watch") == "":
		list("ClusterNetworkPolicyList", policy.ClusterAPIVersion, s.cluster...)
	case isPolicies && s.unknown:
		rw.WriteHeader(http.StatusNotFound)
		fmt.Fprint(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		s.patches = append(s.patches, r.URL.String()+" "+string(body))
		fmt.Fprint(rw, `{}`)
	case r.URL.Query().Get("watch") != "":
		s.mu.Unlock()
		s.stream(rw, r, isPolicies)
		s.mu.Lock()
	case isPolicies && strings.Contains(r.URL.Path, "/multi-networkpolicies/"):
		fmt.Fprint(rw, s.whole)
	case isPolicies:
		list("MultiNetworkPolicyList", policy.APIVersion, s.policies...)
	case r.URL.Path == "/api/v1/pods":
		list("PodList", "v1", `{"metadata":{"namespace":"shop","name":"web","uid":"u1","labels":{"app":"web"},`+
			`"annotations":{"k8s.v1.cni.cncf.io/networks":"blue"}},"spec":{"nodeName":"n1",`+namedPort+`}}`,
			`{"metadata":{"namespace":"shop","name":"plain","uid":"u2","labels":{"app":"web"}},"spec":{"nodeName":"n1",`+namedPort+`}}`)
	case r.URL.Path == "/api/v1/namespaces":
		list("NamespaceList", "v1", `{"metadata":{"name":"shop","labels":{"team":"a"}}}`)
	default:
		list("NodeList", "v1")
	}
}

// namedPort is the container of a pod with a named port.
const namedPort = `"containers":[{"name":"c","ports":[{"name":"http","containerPort":8080}]}]`

const clusterPath = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"

// stream serves a watch until its client goes.
func (s *policyServer) stream(rw http.ResponseWriter, r *http.Request, policies bool) {
	events := s.events
	if !policies {
		events = nil
	}
	flush := http.NewResponseController(rw)
	for _ = flush.Flush(); ; _ = flush.Flush() {
		select {
		case e := <-events:
			fmt.Fprintln(rw, e)
		case <-r.Context().Done():
			return
		}
	}
}

// policyJSON is a policy; spec is its spec.
func policyJSON(name, version, spec string) string {
	return fmt.Sprintf(`{"kind":"MultiNetworkPolicy","apiVersion":"k8s.cni.cncf.io/v1beta1","metadata":{"namespace":"shop",`+
		`"name":%q,"uid":"u-%s","resourceVersion":%q,"annotations":{"k8s.v1.cni.cncf.io/policy-for":"blue"}},"spec":%s}`,
		name, name, version, spec)
}

// start runs the source of a controller on the server. The channel has the namespaces whose policies changed.
func (s *policyServer) start(t *testing.T) (*Kube, chan string) {
	t.Helper()
	s.events, s.ports = make(chan string), make(chan string, 100)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nads, err := nadclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan string, 100)
	k, err := NewKube(core, nads, "", Changes{
		Policy: func(namespace string) { changed <- namespace },
		Pod:    func(string, string, bool) {}, PodGone: func(string, string) {}, Namespace: func(string) {},
		Ports: func(namespace string) { s.ports <- namespace },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	start(t, k.Run)
	return k, changed
}

// served lists the policies of namespace shop, with what cannot be served of them.
func served(t *testing.T, k *Kube) string {
	t.Helper()
	all, err := k.Policies(background, "shop")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, o := range all {
		words = append(words, o.Name+": "+o.Refusal)
	}
	return strings.Join(words, ", ")
}

// TestKubePolicies: lists and watches are read in the same way, and a field that is not known is not lost.
func TestKubePolicies(t *testing.T) {
	s := &policyServer{policies: []string{policyJSON("p", "5", `{"podSelector":{}}`)}}
	k, changed := s.start(t)
	if got := served(t, k); got != "p: " {
		t.Errorf("policies %q", got)
	}
	<-changed
	pods, err := k.PolicyPods(background, "shop")
	if err != nil || len(pods) != 1 || pods[0].Name != "web" || pods[0].Node != "n1" || pods[0].Labels["app"] != "web" {
		t.Errorf("pods %+v, %v; want web alone", pods, err)
	}
	if ports := pods[0].Ports; !slices.Equal(ports, []string{"tcp/http=8080"}) {
		t.Errorf("ports %q", ports)
	}
	if got := <-s.ports; got != "shop" || len(s.ports) != 0 {
		t.Errorf("told of a pod with ports in %s, and %d more; want the one of shop with networks", got, len(s.ports))
	}
	namespaces, err := k.Namespaces(background)
	if err != nil || namespaces["shop"].Labels["team"] != "a" {
		t.Errorf("namespaces %v, %v", namespaces, err)
	}
	for version, tt := range map[string]struct{ spec, want string }{
		"8":  {`{"podSelector":{},"fromm":1}`, "fromm"},
		"9":  {`{"podSelector":{},"Ingress":[{}]}`, "Ingress"}, // JSON keys are case-sensitive, in a watch too
		"10": {`{"podSelector":{},"ingress":[],"ingress":[{}]}`, "duplicate"},
	} {
		s.events <- fmt.Sprintf(`{"type":"MODIFIED","object":%s}`, policyJSON("p", version, tt.spec))
		<-changed
		if got := served(t, k); !strings.Contains(got, tt.want) {
			t.Errorf("spec %s: %q, want %q", tt.spec, got, tt.want)
		}
	}
	for version, annotation := range []string{"", `,"ovn-multinet/log-denied":"true"`} {
		object := policyJSON("p", fmt.Sprint(11+version), `{"podSelector":{}}`)
		s.events <- `{"type":"MODIFIED","object":` + strings.Replace(object, `:"blue"`, `:"blue"`+annotation, 1) + `}`
		<-changed
		all, err := k.Policies(background, "shop")
		if err != nil || len(all) != 1 || all[0].Policy == nil || all[0].Policy.LogDenied != (annotation != "") {
			t.Errorf("with the annotation %q: %+v, %v", annotation, all, err)
		}
	}
	s.events <- `{"type":"BOOKMARK","object":{"kind":"MultiNetworkPolicy","apiVersion":"k8s.cni.cncf.io/v1beta1",` +
		`"metadata":{"resourceVersion":"12"}}}`
	s.events <- fmt.Sprintf(`{"type":"DELETED","object":%s}`, policyJSON("p", "13", `{"podSelector":{}}`))
	<-changed
	if got := served(t, k); got != "" {
		t.Errorf("policies %q after the deletion", got)
	}
}

// TestListedPodWithTooManyLabels: an informer trims a listed pod twice. Its labels are still known to be too many.
func TestListedPodWithTooManyLabels(t *testing.T) {
	raw := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"app": strings.Repeat("x", policy.MaxLabels)},
		Annotations: map[string]string{conf.NetworksAnnotation: "blue"},
	}}
	for what, trim := range map[string]func(*corev1.Pod) *corev1.Pod{"knownPod": knownPod, "policyPod": policyPod} {
		if once, twice := trim(raw), trim(trim(raw)); !hasManyLabels(once) || !hasManyLabels(twice) {
			t.Errorf("%s: many labels once: %t, twice: %t; want true", what, hasManyLabels(once), hasManyLabels(twice))
		}
	}
	raw.Labels = nil
	raw.Annotations["many-labels"] = "" // a tenant's own
	if hasManyLabels(knownPod(raw)) {
		t.Error("an annotation of the tenant says that the labels are too many")
	}
}

// TestKubePolicyState: the state is the only thing that is written.
func TestKubePolicyState(t *testing.T) {
	s := &policyServer{policies: []string{policyJSON("p", "5", `{"podSelector":{}}`)}}
	k, _ := s.start(t)
	if err := k.SetPolicyState(background, &policy.Object{Namespace: "shop", Name: "p"}, `{"ready":true}`); err != nil {
		t.Fatal(err)
	}
	want := `/apis/k8s.cni.cncf.io/v1beta1/namespaces/shop/multi-networkpolicies/p ` +
		`{"metadata":{"annotations":{"ovn-multinet/policy-state":"{\"ready\":true}"}}}`
	if got := strings.Join(s.patches, "\n"); got != want {
		t.Errorf("patches\n%s\nwant\n%s", got, want)
	}
}

// TestKubeWithoutTheKind: a cluster that does not know the kind has no policies, and nothing waits for them.
func TestKubeWithoutTheKind(t *testing.T) {
	s := &policyServer{unknown: true}
	k, _ := s.start(t)
	if got := served(t, k); got != "" {
		t.Errorf("policies %q", got)
	}
	if all, err := k.AllPolicies(background); err != nil || len(all) != 0 {
		t.Errorf("all policies %v, %v", all, err)
	}
}

// TestKubeClusterPolicies: those for OVN networks are ours, and their state is one condition among others.
func TestKubeClusterPolicies(t *testing.T) {
	object := func(name, annotations string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"5","annotations":{%s}},"spec":{"tier":"Admin","priority":3,`+
			`"subject":{"namespaces":{}}},"status":{"conditions":[{"type":"other","status":"True"},{"type":"ovn-multinet/Accepted",`+
			`"status":"False","reason":"PolicyRefused","message":"why","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`,
			name, annotations)
	}
	s := &policyServer{cluster: []string{
		object("primary", ""), object("ours", `"k8s.v1.cni.cncf.io/policy-for":"*"`),
	}, policies: []string{policyJSON("p", "5", `{"podSelector":{}}`)}}
	k, changed := s.start(t)
	all, err := k.ClusterPolicies(background)
	if err != nil || len(all) != 1 || all[0].Name != "ours" || all[0].Policy == nil || all[0].Policy.Priority != 3 ||
		all[0].State != `{"ready":false,"reason":"why","since":"2026-01-02T03:04:05Z"}` {
		t.Fatalf("policies %+v, %v", all, err)
	}
	if whole, err := k.AllPolicies(background); err != nil || len(whole) != 2 || whole[0].ID() != "shop/p" ||
		whole[1].ID() != "ours" || whole[1].State != all[0].State {
		t.Errorf("all policies %+v, %v", whole, err)
	}
	if namespaces := []string{<-changed, <-changed}; !slices.Contains(namespaces, "") {
		t.Errorf("the policies of namespaces %q have changed, and not the ClusterNetworkPolicies", namespaces)
	}
	if _, err := k.Namespaces(background); err != nil { // watched from the first policy on
		t.Error(err)
	}
	for state, want := range map[string]string{
		`{"ready":true,"since":"2026-01-02T03:04:05Z"}`: `"status":"True","lastTransitionTime":"2026-01-02T03:04:05Z",` +
			`"reason":"PolicyAccepted","message":"OVN has the policy"`,
		`{"ready":false,"reason":"why","since":"2026-01-02T03:04:05Z"}`: `"status":"False",` +
			`"lastTransitionTime":"2026-01-02T03:04:05Z","reason":"PolicyRefused","message":"why"`,
	} {
		s.patches = nil
		if err := k.SetPolicyState(background, all[0], state); err != nil {
			t.Fatal(err)
		}
		want = clusterPath + `/ours/status?fieldManager=ovn-multinet&force=true {"apiVersion":"policy.networking.k8s.io/v1alpha2",` +
			`"kind":"ClusterNetworkPolicy","metadata":{"name":"ours"},"status":{"conditions":[{"type":"ovn-multinet/Accepted",` + want + `}]}}`
		if got := strings.Join(s.patches, "\n"); got != want {
			t.Errorf("patches\n%s\nwant\n%s", got, want)
		}
	}
}

// TestBoundaryLargePoliciesAreNotKept: of the policies of one namespace, the source keeps the content of as many as NB may
// have. It reads the others again when they are asked for.
func TestBoundaryLargePoliciesAreNotKept(t *testing.T) {
	var ports []string
	for i := range 60 {
		ports = append(ports, fmt.Sprintf(`{"port":%d,"endPort":%d}`, 1+i, 65534-i))
	}
	rule := `{"from":[{"podSelector":{}}],"ports":[` + strings.Join(ports, ",") + `]},`
	spec := `{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[` + strings.TrimSuffix(strings.Repeat(rule, 24), ",") + `]}`
	s := &policyServer{}
	const policies = 400
	for i := range policies {
		s.policies = append(s.policies, policyJSON(fmt.Sprint("p", i), "5", spec))
	}
	before := heap()
	k, _ := s.start(t)
	all, err := k.Policies(background, "shop")
	if err != nil || len(all) != policies {
		t.Fatalf("%d policies, %v", len(all), err)
	}
	shed := 0
	for _, o := range all {
		if o.Shed {
			shed++
			if o.Size == 0 || o.Policy != nil || o.Isolation.Subject.Pods != "app=db" {
				t.Errorf("shed %+v", o)
			}
		} else if o.Policy == nil {
			t.Errorf("refused %+v", o)
		}
	}
	written := policies * len(spec)
	all = nil
	if kept := int(heap()) - int(before); shed < policies/2 || kept > written/2 {
		t.Errorf("%d of %d are shed; %d bytes are kept of %d", shed, policies, kept, written)
	}
	runtime.KeepAlive(k)
	s.whole = policyJSON("p399", "5", spec)
	if o, err := k.Policy(background, "shop", "p399"); err != nil || o.Policy == nil {
		t.Errorf("read again: %+v, %v", o, err)
	}
}

// TestConditionOfState: a condition says all that a state says.
func TestConditionOfState(t *testing.T) {
	for _, state := range []string{
		`{"ready":true,"since":"2026-01-02T03:04:05Z"}`, `{"ready":true,"reason":"limited","since":"2026-01-02T03:04:05Z"}`,
		`{"ready":false,"reason":"no","since":"2026-01-02T03:04:05Z"}`,
	} {
		condition, err := conditionOf(state)
		if err != nil {
			t.Fatal(err)
		}
		if got := stateOf([]metav1.Condition{condition}); got != state {
			t.Errorf("state %s comes back as %s", state, got)
		}
	}
}
