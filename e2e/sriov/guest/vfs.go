package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
)

const devices = "/sys/bus/pci/devices"

// patience bounds each wait here: an emulated machine on a busy one takes seconds for what is nothing elsewhere.
const patience = 2 * time.Minute

// makeVFs makes virtual functions on each physical one and names all of them: pf0, pf1, and pf0v0 and on. The driver of the
// virtual functions is loaded last: one that finds its device without a link does not look again.
func makeVFs(count int) (err error) {
	defer try.Handle(&err)
	functions := try.E1(filepath.Glob(devices + "/*/sriov_totalvfs"))
	slices.Sort(functions)
	if len(functions) == 0 {
		return errors.New("no device here can have virtual functions")
	}
	var names []string
	for i, f := range functions {
		names = append(names, fmt.Sprintf("pf%d", i))
		try.E(rename(filepath.Dir(f), names[i]))
	}
	try.E(carriers(names))
	var all errgroup.Group // the kernel waits a second for each
	for i, f := range functions {
		all.Go(func() error {
			err := os.WriteFile(filepath.Join(filepath.Dir(f), "sriov_numvfs"), []byte(strconv.Itoa(count)), 0o644)
			if err != nil {
				return fmt.Errorf("make virtual functions of %s: %w", names[i], err)
			}
			return nil
		})
	}
	try.E(all.Wait())
	// The links go down meanwhile.
	try.E(carriers(names))
	try.E(load("igbvf"))
	for i, f := range functions {
		for v := range count {
			dir := filepath.Join(filepath.Dir(f), fmt.Sprintf("virtfn%d", v))
			try.E(rename(dir, fmt.Sprintf("%sv%d", names[i], v)))
		}
	}
	return nil
}

// rename waits for the interface of a device and gives it a name.
func rename(dir, name string) (err error) {
	defer try.Handle(&err)
	var old string
	try.E(wait(func() error {
		entries, err := os.ReadDir(filepath.Join(dir, "net"))
		if err == nil && len(entries) != 1 {
			err = fmt.Errorf("%s has %d interfaces", dir, len(entries))
		}
		if err == nil {
			old = entries[0].Name()
		}
		return err
	}))
	link := try.E1(netlink.LinkByName(old))
	return netlink.LinkSetName(link, name)
}

// carriers sets interfaces up and waits for the link of each.
func carriers(names []string) (err error) {
	defer try.Handle(&err)
	for _, name := range names {
		link := try.E1(netlink.LinkByName(name))
		try.E(netlink.LinkSetUp(link))
	}
	for _, name := range names {
		try.E(wait(func() error {
			text, err := os.ReadFile(filepath.Join("/sys/class/net", name, "carrier"))
			if err == nil && strings.TrimSpace(string(text)) != "1" {
				err = fmt.Errorf("%s has no link", name)
			}
			return err
		}))
	}
	return nil
}

func wait(cond func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := cond()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
