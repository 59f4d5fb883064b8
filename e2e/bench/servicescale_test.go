//go:build bench

package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// endpoints is how many pods each Service has.
const endpoints = 20

// serviceSite has many Services. The controller's own code writes their rows through a proxy, which counts.
type serviceSite struct {
	labtest.Test
	*lab.Lab
	proxy    *ovndbtest.Proxy
	sb       *ovndbtest.Server
	rows     *services.Services
	networks int
}

func newServiceSite(test labtest.Test, socket string, networks int) *serviceSite {
	s := &serviceSite{Test: test, proxy: ovndbtest.StartProxy(test.T, "unix:"+socket), networks: networks}
	db := labtest.OpenNB(s.T, conf.NB{Endpoints: []string{s.proxy.Endpoint()}}, "")
	s.Must(db.WaitConnected(s.Ctx))
	for i := range networks {
		spec := nbtest.Spec(fmt.Sprintf(`"subnets":"10.%d.0.0/16"`, 100+i))
		n, err := netmodel.ParseNetwork("shop", fmt.Sprint("net", i), []byte(spec))
		s.Must(err)
		_, err = nbtest.NewClient(db, nil).Ensure(s.Ctx, n, []string{n.NAD()})
		s.Must(err)
	}
	s.rows = services.New(nbrows.NewStore(db))
	return s
}

// wanted is the n-th Service, of one protocol or of two. Some endpoints may not be ready.
func (s *serviceSite) wanted(n, protocols, notReady int) *services.Wanted {
	network := n % s.networks
	ports := []string{`{"name":"http","port":80}`, `{"name":"dns","port":53,"protocol":"UDP"}`}[:protocols]
	o := service.NewObject("shop", fmt.Sprint("service-", n), 1, map[string]string{service.ProxyLabel: service.ProxyName},
		map[string]string{service.NetworkAnnotation: fmt.Sprint("net", network), service.SelectorAnnotation: "app=web",
			service.AddressAnnotation: "auto"}, []byte(`{"clusterIP":"None","ports":[`+strings.Join(ports, ",")+`]}`))
	w := &services.Wanted{Network: fmt.Sprint("shop/net", network), Service: o.Service}
	for i := range endpoints {
		a := netip.AddrFrom4([4]byte{10, byte(100 + network), byte(128 + (n*endpoints+i)>>8%128), byte(n*endpoints + i)})
		w.Pods = append(w.Pods, service.Backend{Name: fmt.Sprint("pod-", i), Ready: i >= notReady, Addresses: []netip.Addr{a}})
	}
	return w
}

// serviceCost is what a change costs.
type serviceCost struct {
	nb                ovndbtest.Counts
	changed           map[string]int // operations that change rows, by table
	write, sb         time.Duration  // until NB has answered, and until SB has it
	northd            time.Duration  // CPU
	recomputes, flows int
}

// counted makes a change of Services and counts what NB has to do.
func (s *serviceSite) counted(do func() error) (c serviceCost) {
	var mu sync.Mutex
	c.changed = map[string]int{}
	s.proxy.Before(func(tr ovndbtest.Transact) {
		mu.Lock()
		defer mu.Unlock()
		for _, op := range tr.Ops {
			if slices.Contains([]any{"insert", "update", "mutate", "delete"}, op["op"]) {
				c.changed[fmt.Sprint(op["table"])]++
			}
		}
	})
	s.proxy.Reset()
	began := time.Now()
	s.Must(do())
	c.write = time.Since(began)
	s.proxy.Before(nil)
	c.nb = s.proxy.Counts()
	return c
}

// ensure makes NB have a Service that has changed.
func (s *serviceSite) ensure(w *services.Wanted) serviceCost {
	return s.counted(func() error {
		result, err := s.rows.Ensure(s.Ctx, w)
		if err == nil && !result.Changed {
			err = fmt.Errorf("nothing of %s was written", w.Service.ID())
		}
		return err
	})
}

// oneRow wants one transaction that changes one load balancer for each protocol, and besides only the list of ended
// connections, of UDP.
func (s *serviceSite) oneRow(c serviceCost, protocols int) {
	others := len(c.changed) - min(1, c.changed[nb.CoppTable])
	if c.nb.Committed != 1 || c.nb.Refused != 0 || others != 1 || c.changed[nb.LoadBalancerTable] != protocols ||
		c.changed[nb.CoppTable] > 1 {
		s.T.Errorf("a changed endpoint took %+v and changed %v, want one transaction and %d load balancers", c.nb, c.changed,
			protocols)
	}
}

// services counts what a changed endpoint costs beside other Services.
func (c *counts) services() {
	s := newServiceSite(labtest.New(c.t, patience), ovndbtest.StartNB(c.t).Socket, 1)
	for n := range 100 {
		s.ensure(s.wanted(n, 2, 0))
	}
	n := s.ensure(s.wanted(50, 2, 1))
	s.oneRow(n, 2)
	c.note("endpoint of a Service, transactions in NB", float64(n.nb.Committed+n.nb.Refused))
	c.note("endpoint of a Service, reads in NB", float64(n.nb.ReadOnly))
	c.note("endpoint of a Service, operations in NB", float64(n.nb.Operations))
	c.note("endpoint of a Service with TCP and UDP, rows changed in NB", float64(n.changed[nb.LoadBalancerTable]))
	c.note("endpoint of a Service, bytes to NB", float64(n.nb.Sent))
	c.note("endpoint of a Service, bytes from NB", float64(n.nb.Received))
}

// measured makes a change and waits until SB has it, and until ovn-northd is done with everything that follows.
func (s *serviceSite) measured(do func() serviceCost, inSB func() bool) serviceCost {
	s.settle()
	before, cpu := get[lab.Recomputes](s.T)(s.Recomputes(s.Ctx)), get[time.Duration](s.T)(cpuOf(s.Northd.Pid()))
	began := time.Now()
	c := do()
	for !inSB() {
		s.pause(2 * time.Millisecond)
	}
	c.sb = time.Since(began)
	s.settle()
	after := get[lab.Recomputes](s.T)(s.Recomputes(s.Ctx))
	c.northd = get[time.Duration](s.T)(cpuOf(s.Northd.Pid())) - cpu
	c.recomputes, c.flows = after.Northd-before.Northd, after.LFlow-before.LFlow
	return c
}

func (s *serviceSite) pause(d time.Duration) {
	select {
	case <-s.Ctx.Done():
		s.Must(context.Cause(s.Ctx))
	case <-time.After(d):
	}
}

// settle waits until ovn-northd does nothing any more.
func (s *serviceSite) settle() {
	for used := time.Duration(-1); ; {
		now := get[time.Duration](s.T)(cpuOf(s.Northd.Pid()))
		if now-used < 5*time.Millisecond && used >= 0 {
			return
		}
		used = now
		s.pause(500 * time.Millisecond)
	}
}

// vips are those of a Service's load balancer in SB, as a text; "": there is none.
func (s *serviceSite) vips(w *services.Wanted, protocol string) string {
	rows := s.sb.Transact(s.T, ovndbtest.Op{"op": "select", "table": "Load_Balancer", "columns": []string{"vips"},
		"where": []any{[]any{"name", "==", w.Network + ":" + w.Service.ID() + ":" + protocol}}})[0].Rows
	if len(rows) == 0 {
		return ""
	}
	return fmt.Sprint(rows[0]["vips"])
}

// fill makes Services while ovn-northd is stopped: it would compute everything again and again.
func (s *serviceSite) fill(from, to int) {
	s.Must(syscall.Kill(s.Northd.Pid(), syscall.SIGSTOP))
	var all errgroup.Group
	all.SetLimit(16)
	for n := from; n < to; n++ {
		all.Go(func() error {
			_, err := s.rows.Ensure(s.Ctx, s.wanted(n, 1+n/s.networks%2, 0))
			return err
		})
	}
	err := all.Wait()
	s.Must(syscall.Kill(s.Northd.Pid(), syscall.SIGCONT))
	s.Must(err)
	_, err = s.NBCtl(s.Ctx, "--wait=sb", "sync")
	s.Must(err)
}

// sizes are those of the databases and of the programs.
func (s *serviceSite) sizes() (rows []Row) {
	add := func(what, unit string, n float64) { rows = append(rows, Number(what, unit, []float64{n}, 0)) }
	for _, of := range []struct {
		name   string
		server *ovndbtest.Server
		tables []string
	}{
		{"NB", ovndbtest.AttachNB(s.T, s.NBSocket()), []string{nb.LoadBalancerTable, nb.LoadBalancerGroupTable, nb.CoppTable}},
		{"SB", s.sb, []string{"Load_Balancer", "Logical_Flow"}},
	} {
		for _, table := range of.tables {
			list := of.server.Dump(s.T, table)
			add(of.name+": rows of "+table, "", float64(len(list)))
			add(of.name+": these rows as JSON", "KB", float64(len(s.JSON(list)))/1000)
		}
	}
	add("memory of ovn-northd", "MB", memory(s.T, s.Northd.Pid()))
	add("memory of NB's server", "MB", memory(s.T, s.NB.Pid()))
	add("memory of SB's server", "MB", memory(s.T, s.SB.Pid()))
	return rows
}

// TestServiceScale measures what changes of Services cost beside many others.
func TestServiceScale(t *testing.T) {
	const networks = 10
	w := Here(t.Context())
	p := report(t, "65-services-"+w.OVN, "Services, OVN "+w.OVN, fmt.Sprintf(`%d Services with %d endpoints each, on %d networks.
Every second Service has a TCP and a UDP port, the others a TCP port. The controller's own code writes the rows, through a proxy that
counts, without TLS. Times begin with the call.`, *served, endpoints, networks))
	l := lab.Start(t, lab.Options{})
	s := newServiceSite(labtest.New(t, 10*patience), l.NBSocket(), networks)
	s.Lab, s.sb = l, ovndbtest.AttachSB(t, l.SBSocket())
	table := []string{"| | transactions that wrote | that read | operations | rows changed | KB to NB | KB from NB | ms until NB has answered | " +
		"ms until SB has it | ms of ovn-northd's CPU | recomputes of northd | of its flows |", "|---" + strings.Repeat("|---", 11) + "|"}
	for _, many := range []int{100, *served} {
		from := 0
		if many > 100 {
			from = 100
		}
		s.fill(from, many)
		s.T.Logf("%d Services", many)
		table = append(table, s.changes(many)...)
	}
	p.Rows = s.sizes()
	p.Notes = append(p.Notes, "Medians:", strings.Join(table, "\n"))
	t.Log("\n" + strings.Join(table, "\n"))
}

// changes measures each kind of change, with the rows of a table of their medians.
func (s *serviceSite) changes(many int) (table []string) {
	costs := map[string][]serviceCost{}
	var names []string
	measure := func(what string, inSB func() bool, do func() serviceCost) {
		if costs[what] == nil {
			names = append(names, what)
		}
		costs[what] = append(costs[what], s.measured(do, inSB))
	}
	for i := range max(5, *turns/2) {
		for protocols, name := range []string{"tcp", "udp"} {
			n := (2*i + protocols) * s.networks % many
			for _, notReady := range []int{1, 0} {
				w := s.wanted(n, 1+protocols, notReady)
				changes := w.Pods[0].Addresses[0].String() + ":"
				measure("an endpoint, "+[]string{"TCP", "TCP and UDP"}[protocols], func() bool {
					return strings.Contains(s.vips(w, name), changes) == (notReady == 0)
				}, func() serviceCost {
					c := s.ensure(w)
					s.oneRow(c, 1+protocols)
					return c
				})
			}
		}
		fresh := s.wanted(many+i*s.networks, 1, 0)
		measure("a new Service", func() bool { return s.vips(fresh, "tcp") != "" }, func() serviceCost { return s.ensure(fresh) })
		measure("a Service deleted", func() bool { return s.vips(fresh, "tcp") == "" }, func() serviceCost {
			return s.counted(func() error {
				_, err := s.rows.Delete(s.Ctx, fresh.Network, fresh.Service.ID())
				return err
			})
		})
	}
	for _, what := range names {
		line := fmt.Sprintf("| %d Services: %s, n = %d |", many, what, len(costs[what]))
		for _, of := range []func(c serviceCost) float64{
			func(c serviceCost) float64 { return float64(c.nb.Committed + c.nb.Refused) },
			func(c serviceCost) float64 { return float64(c.nb.ReadOnly) },
			func(c serviceCost) float64 { return float64(c.nb.Operations) },
			func(c serviceCost) (sum float64) {
				for _, n := range c.changed {
					sum += float64(n)
				}
				return sum
			},
			func(c serviceCost) float64 { return float64(c.nb.Sent) / 1000 },
			func(c serviceCost) float64 { return float64(c.nb.Received) / 1000 },
			func(c serviceCost) float64 { return ms(c.write) },
			func(c serviceCost) float64 { return ms(c.sb) },
			func(c serviceCost) float64 { return ms(c.northd) },
			func(c serviceCost) float64 { return float64(c.recomputes) },
			func(c serviceCost) float64 { return float64(c.flows) },
		} {
			var values []float64
			for _, c := range costs[what] {
				values = append(values, of(c))
			}
			line += " " + short(Median(values)) + " |"
		}
		table = append(table, line)
	}
	return table
}
