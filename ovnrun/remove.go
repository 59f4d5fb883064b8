package ovnrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
)

// removePatience is the time in which Open vSwitch removes its bridges.
const removePatience = 2 * time.Minute

// Remove takes Open vSwitch and OVN off the node: bridges, datapath and tunnels, and all databases and keys under the
// folder. Open vSwitch and ovn-controller have ended before. A node that runs an Open vSwitch of its own has no
// database of ours, and keeps its bridges. Remove then waits for the end of ctx.
func (h *Host) Remove(ctx context.Context, folder string) error {
	if err := h.setRunDirs(); err != nil {
		return err
	}
	_, err := os.Stat(h.file())
	if err == nil {
		err = h.removeBridges(ctx)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := empty(folder); err != nil {
		return err
	}
	h.Log.Info(conf.Uninstalled)
	<-ctx.Done()
	return nil
}

// removeBridges runs Open vSwitch once more, because it knows best what it has made in the kernel.
func (h *Host) removeBridges(ctx context.Context) error {
	for _, daemon := range []string{ovsdbServer, vswitchd} {
		if err := unused(h.pidFile(daemon)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, removePatience)
	defer cancel()
	database, err := start(h.serverArgs()...)
	if err != nil {
		return err
	}
	switching, err := start(h.switchdArgs()...)
	if err != nil {
		return errors.Join(err, database.end())
	}
	nic, err := h.removeLinks(ctx, switching)
	if err = errors.Join(err, switching.end(), database.end()); err != nil {
		return err
	}
	return h.giveBack(nic)
}

// removeLinks ends ovs-vswitchd so that nothing of it stays in the kernel. It returns the NIC of the bridge of the
// tunnels; the zero value: there was no such bridge.
func (h *Host) removeLinks(ctx context.Context, switching *child) (nic savedNIC, err error) {
	if err := h.awaitConfigured(ctx); err != nil {
		return nic, err
	}
	if nic, err = h.savedNIC(ctx); err != nil {
		return nic, err
	}
	if _, err := unixctl.Call(ctx, h.control(vswitchd), "exit", "--cleanup"); err != nil {
		return nic, err
	}
	select {
	case err := <-switching.ended:
		switching.ended <- err // for end
		return nic, err
	case <-ctx.Done():
		return nic, fmt.Errorf("ovs-vswitchd does not end: %w", ctx.Err())
	}
}

// awaitConfigured waits until ovs-vswitchd has applied the database.
func (h *Host) awaitConfigured(ctx context.Context) error {
	next := op{"op": "mutate", "table": "Open_vSwitch", "where": []any{}, "mutations": []any{[]any{"next_cfg", "+=", 1}}}
	err := h.transact(ctx, next)
	for ; err != nil && ctx.Err() == nil; err = h.transact(ctx, next) { // until the server listens
		pause(ctx)
	}
	for err == nil {
		var found []result
		found, err = transact(ctx, h.Socket(), "Open_vSwitch", op{"op": "select", "table": "Open_vSwitch",
			"where": []any{}, "columns": []string{"next_cfg", "cur_cfg"}})
		if err != nil {
			break
		}
		var row struct {
			Next int `json:"next_cfg"`
			Now  int `json:"cur_cfg"`
		}
		if err = json.Unmarshal(found[0].Rows[0], &row); err == nil && row.Next == row.Now {
			return nil
		}
		pause(ctx)
	}
	return fmt.Errorf("wait for ovs-vswitchd: %w", err)
}

// giveBack gives the tunnels' interface its address again.
func (h *Host) giveBack(nic savedNIC) error {
	if !nic.address.IsValid() {
		return nil
	}
	link, err := netlink.LinkByName(nic.name)
	if err != nil {
		return fmt.Errorf("the address %s of the tunnels belongs to interface %s: %w", nic.address, nic.name, err)
	}
	err = errors.Join(netlink.LinkSetARPOn(link), netlink.AddrReplace(link, linkAddress(nic.address)),
		netlink.LinkSetUp(link))
	if err != nil {
		return fmt.Errorf("give %s to %s again: %w", nic.address, nic.name, err)
	}
	h.Log.Info("the interface has its address again", "interface", nic.name, "address", nic.address)
	return nil
}

// empty deletes everything in a folder.
func empty(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, e.Name())))
	}
	return err
}
