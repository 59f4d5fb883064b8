package agent

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// opens counts how often a file is opened meanwhile.
func (r *rig) opens(file string, meanwhile func()) (n int) {
	r.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	r.must(err)
	defer unix.Close(fd)
	// The kernel makes one of equal events in a row, so the closing is watched too.
	_, err = unix.InotifyAddWatch(fd, file, unix.IN_OPEN|unix.IN_CLOSE)
	r.must(err)
	meanwhile()
	events := make([]byte, 64<<10)
	size, err := unix.Read(fd, events)
	r.must(err)
	for at := 0; at < size; at += unix.SizeofInotifyEvent { // of a file, and so without names
		if binary.NativeEndian.Uint32(events[at+4:])&unix.IN_OPEN != 0 {
			n++
		}
	}
	return n
}

// An entry of the journal may hold a MiB of tenants' text: it is read once by a scrape and once by a plan.
func TestBoundaryTheJournalIsReadOnce(t *testing.T) {
	l := newLooked(t)
	l.conf.PodResources = filepath.Join(t.TempDir(), "kubelet.sock")
	l.agent.kubelet.Socket = l.conf.PodResources
	l.kubelet(vf + ": d2")
	l.source.nads["vf"] = testNAD{Config: `{"cniVersion":"1.0.0","name":"v","type":"host-device"}`, Resource: vf}
	l.writeAttached(l.leftIn("c9", "eth0"))
	entry := filepath.Join(l.conf.StateDir, journal.EntryDir, "c9@eth0")
	for what, do := range map[string]func() error{
		"a scrape": func() error { _, err := l.registry.Gather(); return err },
		"a plan with a device": func() error {
			_, err := l.agent.makePlan(t.Context(), &agentapi.PlanRequest{
				Sandbox: l.sandbox("c1"), Sharing: true, AllowedDelegates: []string{"host-device"}, Annotations: map[string]string{conf.NetworksAnnotation: "vf"},
			}, newPlanNADs(l.agent))
			return err
		},
	} {
		if n := l.opens(entry, func() { l.must(do()) }); n != 1 {
			t.Errorf("%s reads the entry %d times, want once", what, n)
		}
	}
}
