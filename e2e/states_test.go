package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// removeNAD takes a NAD away and waits for nothing.
func (w *world) removeNAD(nad string) {
	w.Must(w.RemoveManifest(labtest.NADFile(nad)))
}

// endNetworks takes networks away that no port is on, and waits until nothing is known of them.
func (w *world) endNetworks(nads ...string) {
	for _, nad := range nads {
		w.removeNAD(nad)
	}
	for _, nad := range nads {
		namespace, name := labtest.NADName(nad)
		w.noSwitch(namespace + "/" + name)
		w.Eventually(func() error {
			if _, ok := w.state(nad); ok {
				return fmt.Errorf("the state of %s is there still", nad)
			}
			return nil
		})
	}
}

func (w *world) stateFile(nad string) string {
	namespace, name := labtest.NADName(nad)
	return filepath.Join(w.Manifests, namespace+"."+name+".network.json")
}

// state reads what the controller says of a NAD's network; false when it says nothing.
func (w *world) state(nad string) (netmodel.NetworkState, bool) {
	text, err := os.ReadFile(w.stateFile(nad))
	if os.IsNotExist(err) {
		return netmodel.NetworkState{}, false
	}
	w.Must(err)
	var file struct {
		Namespace, Name string
		Network         netmodel.NetworkState
	}
	w.Must(json.Unmarshal(text, &file))
	if namespace, name := labtest.NADName(nad); file.Namespace != namespace || file.Name != name {
		w.T.Errorf("the state of %s/%s names %s/%s", namespace, name, file.Namespace, file.Name)
	}
	return file.Network, true
}

// inForce waits until a network is as this configuration of its NAD says, and the controller says so.
func (w *world) inForce(nad, config string) {
	namespace, name := labtest.NADName(nad)
	n, err := netmodel.ParseNetwork(namespace, name, []byte(config))
	w.Must(err)
	w.Eventually(func() error {
		if got := w.accepted(n.ID())[ovndb.AcceptedPrefix+n.NAD()]; got != n.Revision() {
			return fmt.Errorf("network %s is not as its NAD says: revision %q, want %q", n.ID(), got, n.Revision())
		}
		if state, ok := w.state(nad); !ok || !state.Ready {
			return fmt.Errorf("the controller does not say that network %s is ready: %+v", n.ID(), state)
		}
		return nil
	})
}

// notReady waits until the controller says that a NAD is not what its network is, and why.
func (w *world) notReady(nad string, words ...string) {
	w.Eventually(func() error {
		state, ok := w.state(nad)
		if !ok || state.Ready {
			return fmt.Errorf("the controller does not say that network %s is not ready", nad)
		}
		for _, word := range words {
			if !strings.Contains(state.Reason, word) {
				return fmt.Errorf("the reason does not say %q: %q", word, state.Reason)
			}
		}
		return nil
	})
}

// switchOf reads the external_ids of a network's logical switch; nil when there is none.
func (w *world) switchOf(network string) map[string]string {
	found, err := w.rows("find", "Logical_Switch", "name="+network)
	w.Must(err)
	return found[network]
}

// acceptedRow is the name of the row with what is accepted of a network.
func acceptedRow(network string) string { return "ovn-multinet " + network + " accepted" }

// accepted reads the external_ids of the row with what is accepted of a network.
func (w *world) accepted(network string) map[string]string {
	found, err := w.rows("find", "Copp", "name=\""+acceptedRow(network)+"\"")
	w.Must(err)
	return found[acceptedRow(network)]
}

// rows reads the external_ids of rows, by name.
func (w *world) rows(query ...string) (map[string]map[string]string, error) {
	out, err := w.Lab.NBCtl(w.Ctx, append([]string{"--format=json", "--columns=name,external_ids"}, query...)...)
	if err != nil {
		return nil, err
	}
	var table struct{ Data [][]json.RawMessage }
	if err := json.Unmarshal([]byte(out), &table); err != nil {
		return nil, err
	}
	found := map[string]map[string]string{}
	for _, row := range table.Data {
		found[w.oneString(row[0])] = w.pairs(row[1])
	}
	return found, nil
}

// noSwitch waits until a network has none any more.
func (w *world) noSwitch(network string) {
	w.Eventually(func() error { return w.isGone(network) })
}

// written lists what was committed to NB so far: the database's file is a log of transactions. It leaves out what
// ovn-northd reports there, the row that the controller makes some time after the agents' start, and what it tells the
// agents.
func (w *world) written() []string {
	var lines []string
	for line := range strings.Lines(read(w.T, w.NBFile())) {
		others := strings.Contains(line, `"_comment":"ovn-northd`) || strings.Contains(line, `"ovn-multinet smallest mtu"`) ||
			strings.Contains(line, `"ovn-multinet/news"`)
		if strings.HasPrefix(line, "{") && !others {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// nothingWritten compares with what was written before.
func (w *world) nothingWritten(before []string) {
	if after := w.written(); len(after) != len(before) {
		w.T.Errorf("%d transactions were committed to NB that should not have been, the last is %s", len(after)-len(before), after[len(after)-1])
	}
}

// settled waits until the controller has been through all that it was told of so far. It works in the order of a queue,
// and what it was told before the first of two NADs stands in that before the second. They are no networks and write
// nothing to NB. The smallest MTUs are in NB then, too: the controller writes them when it has read all nodes.
func (w *world) settled() {
	marks := []string{"mark-a", "mark-b"}
	for _, nad := range marks {
		w.NAD(nad, `{"type":"ovn-multinet","mark":true}`)
		w.notReady(nad, `"mark"`)
	}
	w.endNetworks(marks...)
	w.Eventually(func() error {
		if out := w.NBCtl("--bare", "--columns=_uuid", "find", "Copp", "external_ids:ovn-multinet/kind=mtu"); out == "" {
			return errors.New("NB does not have the smallest MTUs yet")
		}
		return nil
	})
}

// controllerSays waits until the controller's log has a text.
func (w *world) controllerSays(text string) {
	w.says(w.Controller, text)
}

// says waits until a process's log has a text.
func (w *world) says(p *lab.Process, text string) {
	w.Eventually(func() error {
		log, err := os.ReadFile(p.LogPath()) // empty as long as the process starts
		if err == nil && !strings.Contains(string(log), text) {
			err = fmt.Errorf("%s does not say %q", p.Name, text)
		}
		return err
	})
}

// pinger pings without end, and knows of every answer.
type pinger struct {
	w    *world
	proc *lab.Process
	what string
}

// pinging starts one, from what reaches the address already.
func (w *world) pinging(from endpoint, addr string) *pinger {
	w.MustReach(from, addr)
	proc, err := from.Start(w.Ctx, "ping", "-n", "-i", "0.1", addr)
	w.Must(err)
	p := &pinger{w, proc, fmt.Sprintf("ping from %s to %s", from, addr)}
	p.goesOn()
	return p
}

var answered = regexp.MustCompile(`icmp_seq=(\d+) ttl=`)

func (p *pinger) answers() []int {
	text := p.w.Read(p.proc.LogPath())
	var seqs []int
	for _, m := range answered.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[1])
		p.w.Must(err)
		seqs = append(seqs, n)
	}
	return seqs
}

// drops is how many answers in a row may be missing, at 10 requests a second. OVS's userspace datapath drops packets while
// it adds or removes a port; on a machine with a load of 45, five answers in a row were missing. A network that stays cut
// off has no further answers. A port that was deleted and inserted again has another row, which the tests compare.
const drops = 20

// goesOn waits for two answers more, and looks at all since the start.
func (p *pinger) goesOn() {
	before := len(p.answers())
	p.w.Eventually(func() error {
		if n := len(p.answers()); n < before+2 {
			return fmt.Errorf("%s: only %d answers, %d some time ago", p.what, n, before)
		}
		return nil
	})
	last := 0
	for _, seq := range p.answers() {
		if seq <= last || seq > last+drops+1 {
			p.w.T.Errorf("%s: after answer %d came answer %d", p.what, last, seq)
		}
		last = seq
	}
}

// stop ends it, after two more answers.
func (p *pinger) stop() {
	p.goesOn()
	p.w.Must(p.proc.Stop(p.w.Ctx))
}
