package nodefacts

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// procfs is the folder of a procfs.
type procfs string

func (p procfs) text(name string) string {
	text, err := os.ReadFile(filepath.Join(string(p), name))
	if err != nil {
		return ""
	}
	return string(text)
}

func (p procfs) line(name string) string { return strings.TrimSpace(p.text(name)) }

// number returns the number in a file, or 0.
func (p procfs) number(name string) int {
	n, _ := strconv.Atoi(p.line(name))
	return n
}

// running returns those of the programs that run.
func (p procfs) running(programs []string) []string {
	found := []string{}
	entries, err := os.ReadDir(string(p))
	if err != nil {
		return found
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if name := p.line(filepath.Join(e.Name(), "comm")); slices.Contains(programs, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// States of a socket in /proc/net (include/net/tcp_states.h of Linux).
const (
	tcpListen = "0A"
	udpBound  = "07"
)

// used returns those of the ports that a program uses: TCP ports with a server, and UDP ports.
func (p procfs) used(ports []Port) []Port {
	used := map[Port]bool{}
	for file, of := range map[string]struct{ protocol, state string }{
		"tcp": {"tcp", tcpListen}, "tcp6": {"tcp", tcpListen}, "udp": {"udp", udpBound}, "udp6": {"udp", udpBound},
	} {
		for line := range strings.Lines(p.text(filepath.Join("net", file))) {
			f := strings.Fields(line) // sl, local_address, rem_address, st
			if len(f) < 4 || f[3] != of.state {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if number, err := strconv.ParseUint(hex, 16, 16); err == nil {
				used[Port{of.protocol, int(number)}] = true
			}
		}
	}
	found := []Port{}
	for _, port := range ports {
		if used[port] {
			found = append(found, port)
		}
	}
	return found
}

// mountState returns Writable or ReadOnly for a path of the node, from the mounts of the node's first process. Our own
// mount of the node's root folder is read-only, so it says nothing about the node.
func (p procfs) mountState(path string) string {
	state, longest := Unknown, -1
	for line := range strings.Lines(p.text("1/mountinfo")) {
		before, after, _ := strings.Cut(line, " - ") // proc(5): mount ID … mount point, options …; type, source, options
		f, super := strings.Fields(before), strings.Fields(after)
		if len(f) < 6 || len(super) < 3 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
		if !under(path, point) || len(point) < longest {
			continue
		}
		longest, state = len(point), Writable
		if slices.Contains(strings.Split(f[5], ","), "ro") || slices.Contains(strings.Split(super[2], ","), "ro") {
			state = ReadOnly
		}
	}
	return state
}

// under reports whether a path is a folder or within this folder.
func under(path, folder string) bool {
	return folder == "/" || path == folder || strings.HasPrefix(path, folder+"/")
}
