package controller_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	"github.com/ovn-multinet/ovn-multinet/controller/networks"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// toy is the smallest kind: a NAD wants one row, which has its configuration. A configuration with "bad" is refused.
type toy struct {
	*engine.Engine
	*nads.Index
	source  networks.Source
	rows    *nbrows.Store
	states  engine.Verdicts[netmodel.NetworkState]
	refused *engine.Refusals
}

func newToy(w *nbtest.Client, from networks.Source, metrics *engine.Metrics, leading func() error) *toy {
	k := &toy{source: from, Index: nads.New(from), Engine: engine.New(engine.NewQueue(), metrics, leading, quiet)}
	k.states, k.refused = engine.NewVerdicts[netmodel.NetworkState]("toy", quiet), k.Refusals("toy")
	k.rows = nbrows.NewLeadersStore(w.DB, leading, func(ops []ovsdb.Operation) { k.Wrote(len(ops), 0) })
	k.states.Write = k.writeState
	k.Register("toy", k.reconcile)
	return k
}

func (k *toy) reconcile(ctx context.Context, i engine.Item) error {
	return k.Paced(i, func() error {
		nad, err := k.Read(ctx, i.Key)
		refused := nad != nil && strings.Contains(nad.Config.Text(), "bad")
		if err == nil && !refused {
			_, err = k.rows.Change(ctx, "toy "+i.Key, func(b *nbrows.Batch) error { return k.row(ctx, b, i.Key, nad) })
		}
		if err != nil {
			return err
		}
		if k.refused.Set(i.Key, refused); nad != nil {
			k.states.Put(i.Key, &netmodel.NetworkState{Ready: !refused})
		}
		return nil
	})
}

func (k *toy) row(ctx context.Context, b *nbrows.Batch, id string, nad *netmodel.NAD) error {
	var have *nb.Copp
	key, reads := ovndb.PartKey("toy", id), k.rows.Reads()
	nbrows.ReadOne(reads, nb.CoppTable, key, &have)
	switch err := reads.Do(ctx); {
	case err != nil:
		return err
	case nad != nil:
		ids := map[string]string{"toy": nad.Config.Text()}
		nbrows.Put(b, nb.CoppTable, key, have, &nb.Copp{UUID: key, Name: "toy " + id, ExternalIDs: ids})
	case have != nil:
		b.Add(ovndb.Delete(nb.CoppTable, key))
	}
	return nil
}

func (k *toy) writeState(ctx context.Context, id string, state *netmodel.NetworkState) error {
	nad, err := k.Read(ctx, id)
	if err = cmp.Or(err, k.Leading()); err != nil || nad == nil {
		return err
	}
	text, news, err := engine.StateText(nad.State, state, &state.Since)
	if err != nil || !news {
		return err
	}
	k.source.NetworkEvent(nad, !state.Ready, "Toy", fmt.Sprint("ready: ", state.Ready))
	return k.source.SetNetworkState(ctx, nad, text, false)
}

// runToy runs the smallest kind in two controllers, which lead in turns while objects change and answers of NB are lost,
// at random. In the end NB has the rows of the objects that are not refused and no other row, and each has its state.
func runToy(t *testing.T, a toySource) {
	w := nbtest.NewWorld(t)
	leader, registries := atomic.Int32{}, [2]*prometheus.Registry{}
	for i := range int32(2) {
		metrics := engine.NewMetrics()
		registries[i] = prometheus.NewRegistry()
		metrics.Register(registries[i])
		k := newToy(w.Networks, a, metrics, func() error {
			return map[bool]error{false: errors.New("the other one leads")}[leader.Load() == i]
		})
		a.watch(func(namespace, name string) { k.Add(engine.Of("toy", namespace+"/"+name)) })
		go k.Run(t.Context())
		go k.states.Run(t.Context())
	}
	random, texts := rand.New(rand.NewPCG(1, 2)), map[string]string{"shop/n0": "{}"}
	for step := range 300 {
		id := fmt.Sprintf("%s/n%d", []string{"shop", "dev"}[random.IntN(2)], 1+random.IntN(5))
		switch random.IntN(8) {
		case 0:
			leader.Store(1 - leader.Load())
			[]func(){w.Proxy.Cut, w.Proxy.DropNextReply, w.Proxy.CutBeforeNext}[random.IntN(3)]()
		case 1, 2:
			a.apply(id, "{}")
			a.deleteNAD(t, id)
			delete(texts, id)
		default:
			texts[id] = fmt.Sprintf(`{"type":"toy","%s":%d}`, []string{"value", "bad"}[random.IntN(2)], step)
			a.apply(id, texts[id])
		}
	}
	want := map[string]string{}
	for id := range texts { // all are good at the end
		texts[id], want[id] = `{"type":"toy"}`, "ready"
		a.apply(id, texts[id])
	}
	has := func() string {
		rows, states := map[string]string{}, map[string]string{}
		for _, row := range w.Rows(t)["Copp"] {
			if id, ok := strings.CutPrefix(row["name"], "toy "); ok {
				rows[id] = nbtest.Ext(row, "toy")
			}
		}
		for id := range texts {
			states[id] = strings.TrimSuffix(a.state(id), ", held")
		}
		return fmt.Sprint(rows, states)
	}
	eventually(t, fmt.Sprint(texts, want), has)
	a.apply("shop/n0", "bad")
	want["shop/n0"] = "refused: "
	eventually(t, fmt.Sprint(texts, want), has) // what was accepted stays
	samples := scrape(t, registries[leader.Load()]) + a.eventLines()
	for _, part := range []string{"refused_objects{code=,kind=toy}", "pass_rows_total{kind=toy,namespace=dev}", "Warning shop/n0"} {
		if !strings.Contains(samples, part) {
			t.Errorf("there is no %s in\n%s", part, samples)
		}
	}
}
