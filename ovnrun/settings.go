package ovnrun

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// settings are the keys of external_ids that this process has set in the row of Open_vSwitch.
type settings struct {
	mu  sync.Mutex
	set map[string]string
}

// settingsEvery is the time after which the keys that another program has changed or removed are there again.
const settingsEvery = 5 * time.Second

// setOnce sets the keys of external_ids that keep the value that they have: the node's name as a chassis, which never
// changes, and how long an ovn-controller that starts leaves the former flows in place while it computes the new ones,
// in ms (ovn-controller(8)). An operator may set another time: a node with many flows needs a longer one.
func (h *Host) setOnce(ctx context.Context) error {
	ids := h.once()
	return h.transact(ctx, op{"op": "mutate", "table": "Open_vSwitch", "where": []any{}, "mutations": []any{
		[]any{"external_ids", "insert", ovsMap(ids)}}})
}

func (h *Host) once() map[string]string {
	return map[string]string{"system-id": h.Node, "ovn-ofctrl-wait-before-clear": "2000"}
}

// set sets keys of external_ids, now and whenever another program has changed them.
func (h *Host) set(ctx context.Context, ids map[string]string) error {
	if h.settings == nil { // nobody keeps them: only RunController does
		return h.write(ctx, ids)
	}
	h.settings.mu.Lock()
	defer h.settings.mu.Unlock()
	maps.Copy(h.settings.set, ids)
	return h.write(ctx, ids)
}

func (h *Host) write(ctx context.Context, ids map[string]string) error {
	keys := slices.Sorted(maps.Keys(ids))
	return h.transact(ctx, op{"op": "mutate", "table": "Open_vSwitch", "where": []any{}, "mutations": []any{
		[]any{"external_ids", "delete", []any{"set", keys}}, []any{"external_ids", "insert", ovsMap(ids)}}})
}

// keepSettings writes again what other programs have changed in external_ids: some of them replace all keys. It also
// brings up the interfaces that lead to physical networks.
func (h *Host) keepSettings(ctx context.Context) {
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(settingsEvery):
		}
		if err := h.restoreSettings(ctx); err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			h.Log.Warn("cannot check the settings of Open vSwitch", "err", err)
		}
	}
}

func (h *Host) restoreSettings(ctx context.Context) error {
	every := func(table string, columns ...string) op {
		return op{"op": "select", "table": table, "where": []any{}, "columns": columns}
	}
	found, err := transact(ctx, h.Socket(), "Open_vSwitch",
		every("Open_vSwitch", "external_ids"), every("Bridge", "external_ids"))
	if err != nil || len(found[0].Rows) == 0 {
		return err
	}
	ids, err := externalIDs(found[0].Rows[0])
	if err != nil {
		return err
	}
	if err := h.restoreKeys(ctx, ids); err != nil {
		return err
	}
	return h.bringUplinksUp(ctx, found[1].Rows)
}

func (h *Host) restoreKeys(ctx context.Context, ids map[string]string) error {
	h.settings.mu.Lock()
	defer h.settings.mu.Unlock()
	lost := map[string]string{}
	for key, value := range h.settings.set {
		if ids[key] != value {
			lost[key] = value
		}
	}
	for key, value := range h.once() {
		if _, there := ids[key]; !there {
			lost[key] = value
		}
	}
	if len(lost) == 0 {
		return nil
	}
	h.Log.Warn("another program has changed keys in external_ids of Open_vSwitch that are ours; writing them again",
		"keys", slices.Sorted(maps.Keys(lost)))
	return h.write(ctx, lost)
}

// bringUplinksUp brings up the interfaces of bridges to physical networks: an operating system leaves a NIC without
// addresses down.
func (h *Host) bringUplinksUp(ctx context.Context, bridges []json.RawMessage) error {
	var physical []any
	for _, row := range bridges {
		ids, err := externalIDs(row)
		if err != nil {
			return err
		}
		if name := ids[netmodel.UplinkMark]; name != "" {
			physical = append(physical, op{"op": "select", "table": "Port", "columns": []string{"name"},
				"where": []any{[]any{"external_ids", "includes", ovsMap(map[string]string{netmodel.UplinkMark: name})}}})
		}
	}
	if len(physical) == 0 {
		return nil
	}
	found, err := transact(ctx, h.Socket(), "Open_vSwitch", physical...)
	if err != nil {
		return err
	}
	for _, ports := range found {
		for _, row := range ports.Rows {
			var port struct{ Name string }
			if err := json.Unmarshal(row, &port); err != nil {
				return err
			}
			link, err := netlink.LinkByName(port.Name)
			if err != nil || link.Attrs().Flags&net.FlagUp != 0 {
				continue // an interface that is gone is the agent's to tell
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return fmt.Errorf("bring %s up: %w", port.Name, err)
			}
			h.Log.Info("an interface to a physical network was down and is up now", "interface", port.Name)
		}
	}
	return nil
}
