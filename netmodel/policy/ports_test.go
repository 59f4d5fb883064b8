package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestNamedPorts: which container ports count, and with which number.
func TestNamedPorts(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol}
	}
	spec := &corev1.PodSpec{
		Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{port("http", 80, ""), port("", 81, ""), port("dns", 53, "UDP"), port("dns", 54, "TCP")}},
			{Ports: []corev1.ContainerPort{port("http", 82, "TCP"), port("Bad name", 1, ""), port("zero", 0, ""),
				port("wide", 70000, ""), port("ping", 1, "ICMP"), port("sig", 9, "SCTP")}},
		},
		InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{port("init", 90, "")}},
			{RestartPolicy: &always, Ports: []corev1.ContainerPort{port("http", 91, ""), port("metrics", 92, "")}},
		},
	}
	want := []string{"tcp/http=80", "udp/dns=53", "tcp/dns=54", "sctp/sig=9", "tcp/metrics=92"}
	if got := NamedPorts(spec); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i := range MaxNamedPorts + 9 {
		spec.Containers[0].Ports = append(spec.Containers[0].Ports, port(fmt.Sprint("p", i), 1, ""))
	}
	if n := len(NamedPorts(spec)); n != MaxNamedPorts {
		t.Errorf("%d ports, %d is the limit", n, MaxNamedPorts)
	}
}

// withNumbers makes a set of policies, with the numbers of ports.
func withNumbers(t *testing.T, has []Named, list ...*Policy) *Set {
	t.Helper()
	s, refused := NewSet("shop/blue", "shop", list, false)
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	s.SetNumbers(has, nil)
	return s
}

// TestACLsOfNames: ingress needs the numbers of the pods that the policy is for, and egress those of the peers. A CIDR
// has no names, and without peers each pod is one.
func TestACLsOfNames(t *testing.T) {
	p := parse(t, `{"podSelector":{"matchLabels":{"app":"db"}},"policyTypes":["Ingress","Egress"],
		"ingress":[{"from":[{"podSelector":{}},{"ipBlock":{"cidr":"10.0.0.0/8"}}],"ports":[{"port":"http"},{"port":443},{"protocol":"UDP","port":"none"}]}],
		"egress":[{"to":[{"podSelector":{}},{"namespaceSelector":{}},{"ipBlock":{"cidr":"10.0.0.0/8"}}],"ports":[{"port":"http"},{"protocol":"UDP","port":"http"}]},
			{"ports":[{"port":"http"}]}]}`)
	db, all, anywhere := Selector{Pods: "app=db"}, Selector{}, Selector{Anywhere: true}
	s := withNumbers(t, []Named{
		{db.withPort("tcp/http"), "shop", 8080}, {db.withPort("tcp/http"), "shop", 80},
		{all.withPort("tcp/http"), "shop", 80}, {anywhere.withPort("tcp/http"), "shop", 80},
		{anywhere.withPort("tcp/http"), "other", 90}, {anywhere.withPort("udp/http"), "other", 90},
	}, p)
	var got []string
	acls := s.ACLs(func(s Selector) string { return "<" + s.String() + ">" })
	for _, subject := range s.Selectors() {
		for _, a := range acls[subject] {
			if a.Policy != "" && a.Action == Accept {
				got = append(got, a.Rule+": "+a.Match)
			}
		}
	}
	from := func(subject, port string) string {
		to := "outport == @<" + subject + "> && "
		return "(" + to + "ip4.src == {$<all pods>_ip4, 10.0.0.0/8} && " + port + ") || " +
			"(" + to + "ip6.src == {$<all pods>_ip6} && " + port + ")"
	}
	to := func(sets, port string) string {
		four := "(inport == @<pods with app=db> && ip4.dst == {" + sets + "} && " + port + ")"
		six := strings.NewReplacer("_ip4", "_ip6", "ip4.", "ip6.").Replace(four)
		return four + " || " + six
	}
	some, each := "$<port tcp/http=80 of all pods>_ip4, ", "$<port tcp/http=80 of all pods of all namespaces>_ip4"
	want := []string{
		"ingress 0: " + from("pods with app=db", "tcp.dst == {443}"),
		"egress 0 tcp/http=80: " + to(some+each, "tcp.dst == {80}"),
		"egress 0 tcp/http=90: " + to(strings.ReplaceAll(each, "=80", "=90"), "tcp.dst == {90}"),
		"egress 0 udp/http=90: " + to("$<port udp/http=90 of all pods of all namespaces>_ip4", "udp.dst == {90}"),
		"egress 1 tcp/http=80: " + to(each, "tcp.dst == {80}"),
		"egress 1 tcp/http=90: " + to(strings.ReplaceAll(each, "=80", "=90"), "tcp.dst == {90}"),
		"ingress 0 tcp/http=80: " + from("port tcp/http=80 of pods with app=db", "tcp.dst == {80}"),
		"ingress 0 tcp/http=8080: " + from("port tcp/http=8080 of pods with app=db", "tcp.dst == {8080}"),
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(s.Selectors()) - len(acls); n != 2+4 {
		t.Errorf("%d groups without ACLs, want the peers and their ports", n)
	}
}

// TestDecideOfNames: the verdict goes by the number of the destination.
func TestDecideOfNames(t *testing.T) {
	p := parse(t, `{"podSelector":{},"policyTypes":["Ingress","Egress"],
		"ingress":[{"ports":[{"port":"http"}]}],"egress":[{"ports":[{"port":"http"}]}]}`)
	all, each := Selector{Port: "tcp/http"}, Selector{Anywhere: true, Port: "tcp/http"}
	s := withNumbers(t, []Named{{all, "shop", 80}, {all, "shop", 90}, {each, "shop", 80}, {each, "shop", 90}}, p)
	members := map[Selector][]string{{}: {db, web}}
	for port, pod := range map[string]string{"tcp/http=80": db, "tcp/http=90": web} {
		members[Selector{Port: port}], members[Selector{Anywhere: true, Port: port}] = []string{pod}, []string{pod}
	}
	placed := placeSet(t, s, true, members)
	for _, tt := range []struct {
		src, dst string
		port     uint16
		want     bool
	}{{web, db, 80, true}, {web, db, 90, false}, {db, web, 90, true}, {db, web, 80, false}} {
		for _, toPod := range []bool{true, false} {
			at := map[bool]string{true: tt.dst, false: tt.src}[toPod]
			v := Decide([]*Placed{placed}, at, toPod, packet(tt.src, tt.dst, fmt.Sprint("tcp/", tt.port)))
			if v.Allowed != tt.want {
				t.Errorf("%s to %s, port %d, toPod %t: %s", tt.src, tt.dst, tt.port, toPod, summary(v))
			}
		}
	}
}

// TestNumbersAreLimited: a namespace's own numbers come first, the other namespaces take turns, and of one namespace the
// numbers that are there stay.
func TestNumbersAreLimited(t *testing.T) {
	p := parse(t, `{"podSelector":{},"egress":[{"to":[{"namespaceSelector":{}}],"ports":[{"port":"http"}]}]}`)
	name := Selector{Anywhere: true, Port: "tcp/http"}
	var has []Named
	for i := range uint16(100) {
		has = append(has, Named{name, "attacker", 1 + i})
	}
	has = append(has, Named{name, "friend", 8080}, Named{name, "shop", 9000}, Named{name, "shop", 9000})
	served := func(s *Set) (numbers []uint16) { return s.numbers[name] }
	s := withNumbers(t, has, p)
	if got := served(s); len(got) != MaxNumbers || !slices.Contains(got, 8080) || !slices.Contains(got, 9000) {
		t.Errorf("numbers %v, want %d with 8080 and 9000", got, MaxNumbers)
	}
	if err := s.Limit(p); err == nil || !strings.Contains(err.Error(),
		"port tcp/http of all pods of all namespaces: pods have more numbers for this name than are served") {
		t.Errorf("limit: %v", err)
	}
	has = nil
	for i := range uint16(MaxNumbers + 1) {
		has = append(has, Named{name, "shop", 1 + i})
	}
	s.SetNumbers(has, map[Selector]bool{name.withPort("tcp/http=33"): true})
	if got := served(s); len(got) != MaxNumbers || slices.Contains(got, 32) || !slices.Contains(got, 33) {
		t.Errorf("numbers %v: want 33, which was there", got)
	}
	if s.SetNumbers(has[:MaxNumbers], nil); s.Limit(p) != nil {
		t.Errorf("within the limit: %v", s.Limit(p))
	}
}

// TestNumbersDoNotRefusePolicies: names count as selectors, whatever numbers pods have, and numbers get the rest.
func TestNumbersDoNotRefusePolicies(t *testing.T) {
	var list []*Policy
	var has []Named
	for i := range 8 {
		var ports []string
		for j := range MaxPorts {
			ports = append(ports, fmt.Sprintf(`{"port":"p%d-%d"}`, i, j))
			for n := range uint16(4) {
				has = append(has, Named{Selector{Port: fmt.Sprintf("tcp/p%d-%d", i, j)}, "shop", 1 + n})
			}
		}
		p := parse(t, `{"podSelector":{},"ingress":[{"ports":[`+strings.Join(ports, ",")+`]}]}`)
		p.Name, p.Created = fmt.Sprint(i), int64(i)
		list = append(list, p)
	}
	s := withNumbers(t, has, list...)
	if n := len(s.Selectors()); n != MaxSelectors {
		t.Errorf("%d groups, %d is the limit", n, MaxSelectors)
	}
	for i := range 10 {
		p := *list[0]
		p.Name, p.Created, p.Subject = fmt.Sprint("late", i), 100, Selector{Pods: fmt.Sprint("n=", i)}
		list = append(list, &p)
	}
	if _, refused := NewSet("shop/blue", "shop", list, false); len(refused) == 0 || refused[list[0]] != nil {
		t.Errorf("%d names: refused %v", 18*MaxPorts, refused)
	}
}

// TestMatcherOfNames: a pod is in the group of its number, and one whose number has no group is noticed.
func TestMatcherOfNames(t *testing.T) {
	web := Selector{Pods: "app=web"}
	m, _ := matcher(t, &Index{Entries: []Entry{
		{Group: "g80", Selector: web.withPort("tcp/http=80"), Here: true},
		{Group: "g90", Selector: web.withPort("tcp/http=90"), Here: true},
		{Group: "db90", Selector: Selector{Pods: "app=db", Port: "tcp/http=90"}, Here: true},
		{Selector: web.withPort("tcp/http"), Here: true},
		{Selector: web.withPort("tcp/dns")},
	}}, nil, nil)
	labels := map[string]string{"app": "web"}
	in, out := m.Match(labels, []string{"tcp/dns=53", "tcp/http=90"})
	if !slices.Equal(in, []string{"g90"}) || !slices.Equal(out, []string{"g80", "db90"}) {
		t.Errorf("in %v, out %v", in, out)
	}
	for port, want := range map[string]string{
		"tcp/http=80": "", "tcp/http=81": "tcp/http=81", "udp/http=81": "", "tcp/dns=53": "", "tcp/other=1": "",
	} {
		got, numbers := m.Missing(labels, []string{port})
		if got != want || numbers != 2*min(1, len(want)) {
			t.Errorf("port %s: missing %q, %d numbers; want %q", port, got, numbers, want)
		}
	}
	if got, _ := m.Missing(map[string]string{"app": "db"}, []string{"tcp/http=81"}); got != "" {
		t.Errorf("a pod that no policy selects misses %q", got)
	}
}
