package show

import (
	"fmt"
	"io"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// ServiceList writes a line for each Service and network.
func ServiceList(w io.Writer, list []Service) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no Services on networks")
		return err
	}
	t := table(w)
	fmt.Fprintln(t, "SERVICE\tNETWORK\tADDRESSES\tOUTSIDE\tPORTS\tBACKENDS\tSTATE")
	for i := range list {
		l := &list[i]
		printf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.id(), orDash(l.Network), l.addresses(), words(l.Outside),
			words(l.Ports), words(l.Backends), readiness(l.Ready, l.Reason))
	}
	return t.Flush()
}

func (l *Service) id() string { return conf.OneLine(l.Namespace+"/"+l.Name, conf.MaxReason) }

func (l *Service) addresses() string {
	if l.Headless {
		return "headless"
	}
	return words(l.Addresses)
}

// ServicePage writes one Service: what is accepted beside what its object says, and its backends.
func ServicePage(w io.Writer, d *ServiceDetails) error {
	t := table(w)
	line := func(name string, value any) { printf(t, "%s:\t%v\n", name, value) }
	line("Service", d.id())
	line("State", readiness(d.Ready, d.Reason))
	line("Network", orDash(d.Network))
	line("Addresses", d.addresses())
	line("Outside", words(d.Outside))
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nFIELD\tACCEPTED\tOBJECT")
	accepted, object := d.Accepted.fields(), d.Object.fields()
	names := []string{"network", "address", "outside address", "pods", "ports", "session affinity", "pods not ready"}
	for i, field := range names {
		printf(t, "%s\t%s\t%s\n", field, accepted[i], object[i])
	}
	if err := t.Flush(); err != nil || len(d.Vips) == 0 {
		return err
	}
	fmt.Fprintln(t, "\nPORT\tADDRESS\tBACKENDS\tBACKEND\tPOD\tINTERFACE\tNODE")
	for i := range d.Vips {
		d.Vips[i].write(t)
	}
	return t.Flush()
}

// fields returns the values of the fields in words.
func (s *ServiceSpec) fields() []string {
	if s == nil {
		return []string{"-", "-", "-", "-", "-", "-", "-"}
	}
	notReady := "no backends"
	if s.NotReady {
		notReady = "backends"
	}
	return []string{
		s.NAD, s.Address, orDash(s.Outside), s.Pods, orDash(short(s.Ports, maxPeers)), s.Affinity, notReady,
	}
}

// write writes a line for each backend.
func (v *Vip) write(w io.Writer) {
	port, address, count := v.Port, v.Address.String(), strconv.Itoa(len(v.Backends))
	line := func(backend, pod, ifName, node string) {
		printf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", port, address, count, backend, pod, ifName, node)
		port, address, count = "", "", ""
	}
	if len(v.Backends) == 0 {
		line("-", "-", "-", "-")
	}
	for i := range v.Backends {
		if i == maxMembers {
			line(fmt.Sprintf("and %d more: -o json has all", len(v.Backends)-i), "", "", "")
			break
		}
		b := &v.Backends[i]
		if b.Port == nil {
			line(b.Address.String(), "(no port has it)", "-", "-")
			continue
		}
		line(b.Address.String(), b.Port.pod(), orDash(b.Port.Interface), orDash(b.Port.Node))
	}
}
