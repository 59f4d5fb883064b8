package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// What of SB's tables tells where a port is.
type (
	portBindingRow struct {
		UUID        string  `ovsdb:"_uuid"`
		LogicalPort string  `ovsdb:"logical_port"`
		Chassis     *string `ovsdb:"chassis"`
		// The columns of the table's other index, which libovsdb's cache cannot do without.
		Datapath  string `ovsdb:"datapath"`
		TunnelKey int    `ovsdb:"tunnel_key"`
	}
	chassisRow struct {
		UUID string `ovsdb:"_uuid"`
		Name string `ovsdb:"name"`
	}
)

// Move is a change of a port's host.
type Move struct {
	At      time.Time
	Chassis string // system-id; "" for none
}

// BindingWatch follows which chassis hosts a port, by what SB tells of each change.
type BindingWatch struct {
	port   string
	client client.Client

	ended   sync.Once
	mu      sync.Mutex
	seen    map[string]bool   // rows
	names   map[string]string // of chassis, by row
	host    string            // row
	chassis string
	moves   []Move
	changed chan struct{} // closed at the next change
}

// WatchBinding starts to follow a logical port, which need not be there yet.
func (l *Lab) WatchBinding(ctx context.Context, port string) (*BindingWatch, error) {
	w := &BindingWatch{port: port, seen: map[string]bool{}, names: map[string]string{}, changed: make(chan struct{})}
	if err := w.start(ctx, "unix:"+l.SBSocket()); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the binding of %s: %w", port, err), w.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches = append(l.watches, w)
	return w, nil
}

func (w *BindingWatch) start(ctx context.Context, endpoint string) error {
	rows, err := model.NewClientDBModel("OVN_Southbound",
		map[string]model.Model{"Port_Binding": &portBindingRow{}, "Chassis": &chassisRow{}})
	if err != nil {
		return err
	}
	log := logr.Discard()
	w.client, err = client.NewOVSDBClient(rows, client.WithEndpoint(endpoint), client.WithLogger(&log))
	if err != nil {
		return err
	}
	if err := w.client.Connect(ctx); err != nil {
		return err
	}
	w.client.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { w.note(row, false) },
		UpdateFunc: func(_ string, _, row model.Model) { w.note(row, false) },
		DeleteFunc: func(_ string, row model.Model) { w.note(row, true) },
	})
	binding, chassis := &portBindingRow{}, &chassisRow{}
	// The columns are listed, since libovsdb drops each update that has one that the model does not know.
	_, err = w.client.Monitor(ctx, w.client.NewMonitor(
		client.WithTable(chassis, &chassis.Name),
		client.WithConditionalTable(binding, []model.Condition{
			{Field: &binding.LogicalPort, Function: ovsdb.ConditionEqual, Value: w.port},
		}, &binding.LogicalPort, &binding.Chassis, &binding.Datapath, &binding.TunnelKey)))
	if err != nil {
		return err
	}
	// The first rows are in the cache now; that they come as events too is not bound to have happened.
	var first []string
	for _, table := range []string{"Port_Binding", "Chassis"} {
		for row := range w.client.Cache().Table(table).Rows() {
			first = append(first, row)
		}
	}
	return w.wait(ctx, func() bool {
		return !slices.ContainsFunc(first, func(row string) bool { return !w.seen[row] })
	})
}

// note takes the events, which come one after the other.
func (w *BindingWatch) note(row model.Model, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch row := row.(type) {
	case *chassisRow:
		w.seen[row.UUID] = true
		w.names[row.UUID] = row.Name // stays when the chassis goes: the port's row tells of that
	case *portBindingRow:
		w.seen[row.UUID] = true
		w.host = ""
		if row.Chassis != nil && !gone {
			w.host = *row.Chassis
		}
	}
	// A host without a name is one whose own event comes next.
	if name, known := w.names[w.host]; (known || w.host == "") && name != w.chassis {
		w.chassis = name
		w.moves = append(w.moves, Move{At: time.Now(), Chassis: name})
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// Chassis is the system-id of the port's host, "" for none.
func (w *BindingWatch) Chassis() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chassis
}

// Moves are all changes since the watch began, the first host among them.
func (w *BindingWatch) Moves() []Move {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.moves)
}

// Await returns when the port's host is one that is wanted.
func (w *BindingWatch) Await(ctx context.Context, want func(chassis string) bool) error {
	if err := w.wait(ctx, func() bool { return want(w.chassis) }); err != nil {
		return fmt.Errorf("wait for %s to move: it is on %q after %d moves: %w", w.port, w.Chassis(), len(w.Moves()), err)
	}
	return nil
}

// wait returns when cond, which is called with w.mu held, is true.
func (w *BindingWatch) wait(ctx context.Context, cond func() bool) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultPatience)
		defer cancel()
	}
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the watch. The lab's end does it too.
func (w *BindingWatch) Close() error {
	w.ended.Do(func() {
		if w.client != nil {
			w.client.Close()
		}
	})
	return nil
}
