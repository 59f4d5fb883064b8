package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"
)

// Snapshot is the state of a lab's world as sorted lines: what has to be the same before an Add and after its
// Del. Left out is what changes by itself or stays by design: OVN's own progress marks, cni0, and host-local's
// memory of its last address.
type Snapshot []string

// Snapshot reads NB, every node's br-int, links, state folder and Flannel leases.
func (l *Lab) Snapshot(ctx context.Context) (Snapshot, error) {
	lines, err := dumpDB(ctx, "nb", l.nb.remote(), "OVN_Northbound", keepNB)
	if err != nil {
		return nil, err
	}
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return isPortList(line) || isEnded(line) || isMTU(line) || isNews(line)
	})
	for _, n := range l.Nodes {
		more, err := n.snapshot(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		lines = append(lines, more...)
	}
	slices.Sort(lines)
	return lines, nil
}

// isPortList reports whether a line is the port list of a node. An agent makes the list some time after its start. An
// older version neither makes nor changes a list: what it leaves there goes when the agent of a newer version starts.
func isPortList(line string) bool {
	return strings.HasPrefix(line, "nb Copp ") && strings.Contains(line, "ovn-multinet/kind port-list")
}

// isEnded reports whether a line is the list of a node's ended connections. The node's agent deletes the entries some
// minutes later, and the list stays as long as the node.
func isEnded(line string) bool {
	return strings.HasPrefix(line, "nb Copp ") && strings.Contains(line, "ovn-multinet/kind ended-connections")
}

// isMTU reports whether a line is the row with the smallest MTUs, which a controller makes some time after the agents
// say theirs.
func isMTU(line string) bool {
	return strings.HasPrefix(line, "nb Copp ") && strings.Contains(line, "ovn-multinet/kind mtu")
}

// isNews reports whether a line is the row by which a controller tells the agents that there is something to read. An
// older version does not make it.
func isNews(line string) bool {
	return strings.HasPrefix(line, "nb Address_Set ") && strings.Contains(line, "ovn-multinet/kind news")
}

// Diff returns "" when the two are equal, else a line for each difference: "-" for what only s has, "+" for
// what only o has.
func (s Snapshot) Diff(o Snapshot) string {
	var diff strings.Builder
	count := map[string]int{}
	for _, line := range s {
		count[line]++
	}
	for _, line := range o {
		if count[line]--; count[line] < 0 {
			fmt.Fprintln(&diff, "+", line)
		}
	}
	for _, line := range s {
		if count[line] > 0 {
			count[line]--
			fmt.Fprintln(&diff, "-", line)
		}
	}
	return diff.String()
}

func (n *Node) snapshot(ctx context.Context) (_ []string, err error) {
	defer try.Handle(&err)
	lines := try.E1(dumpDB(ctx, n.Name+" ovs", "unix:"+n.OVSSocket, "Open_vSwitch", keepOVS))
	links := try.E1(n.links())
	lines = append(lines, links...)
	for what, dir := range map[string]string{
		"state": n.StateDir, "lease": n.leaseDir(), "flannel": n.flannelState(), "libcni": n.cacheDir(),
	} {
		files := try.E1(listFiles(n.Name+" "+what, dir))
		lines = append(lines, files...)
	}
	return lines, nil
}

func (n *Node) links() (lines []string, err error) {
	err = n.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			if a := link.Attrs(); a.Name != "cni0" {
				lines = append(lines, fmt.Sprintf("%s link %s %s mtu %d", n.Name, link.Type(), a.Name, a.MTU))
			}
		}
		return nil
	})
	return lines, err
}

func listFiles(what, dir string) ([]string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // gone meanwhile, or never made
		}
		if err != nil || d.IsDir() || d.Name() == "lock" || strings.HasPrefix(d.Name(), "last_reserved_ip.") {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		lines = append(lines, what+" file "+rel)
		return err
	})
	return lines, err
}

// dumpDB makes a line of every row. keep returns the columns of a table that count, nil for none, all for
// all.
func dumpDB(ctx context.Context, what, remote, db string, keep func(table string) columns) ([]string, error) {
	out, err := tool(ctx, "ovsdb-client", "--format=json", timeoutArg(ctx), "dump", remote, db)
	if err != nil {
		return nil, err
	}
	var lines []string
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var table struct {
			Caption  string
			Headings []string
			Data     [][]json.RawMessage
		}
		if err := dec.Decode(&table); err != nil {
			return nil, fmt.Errorf("read the dump of %s: %w", db, err)
		}
		name := strings.TrimSuffix(table.Caption, " table")
		wanted := keep(name)
		if wanted == nil {
			continue
		}
		for _, row := range table.Data {
			line := what + " " + name
			for i, column := range table.Headings {
				if value, ok := wanted(column, row[i]); ok {
					line += " " + column + "=" + value
				}
			}
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// columns says how a column is written, and whether it counts.
type columns func(name string, value json.RawMessage) (string, bool)

// keepNB takes everything but the rows and columns with which OVN reports its own progress, the identity of the
// cluster and the MTUs, which an older version does not write, and the age of NB.
func keepNB(table string) columns {
	if table == "NB_Global" {
		return nil
	}
	return func(name string, value json.RawMessage) (string, bool) {
		if name == "external_ids" {
			return without(value, "ovn-multinet/cluster", "ovn-multinet/made", "ovn-multinet/age", "ovn-multinet/mtu"), true
		}
		if name == "options" && table == "Logical_Router_Port" {
			return without(value, "gateway_mtu"), true
		}
		return string(value), name != "up" && name != "_version" && name != "status"
	}
}

// keepOVS takes the names of everything, and the identity of interfaces.
func keepOVS(table string) columns {
	switch table {
	case "Bridge", "Port", "Interface":
	default:
		return nil
	}
	return func(name string, value json.RawMessage) (string, bool) {
		switch {
		case name == "name", table == "Interface" && name == "type":
			return string(value), true
		case table == "Interface" && name == "external_ids":
			return without(value, "ovn-installed"), true // what ovn-controller adds
		}
		return "", false
	}
}

// without drops the keys that begin so from a map, which is ["map",[[k,v],...]].
func without(value json.RawMessage, prefixes ...string) string {
	var m [2]json.RawMessage
	var pairs [][2]string
	if json.Unmarshal(value, &m) != nil || json.Unmarshal(m[1], &pairs) != nil {
		return string(bytes.TrimSpace(value))
	}
	pairs = slices.DeleteFunc(pairs, func(kv [2]string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(kv[0], prefix) })
	})
	return fmt.Sprint(pairs)
}
