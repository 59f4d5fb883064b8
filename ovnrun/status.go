package ovnrun

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// status is what a member knows of its raft: the answer to cluster/status of ovsdb-server(1).
type status struct {
	joined  bool // the member takes part in the raft
	joining bool // it is about to, for the first time, and has no data
	removed bool // by the raft
	leader  bool
	timer   time.Duration // the election timer
	servers []server
}

// server is a member, as another member knows it.
type server struct {
	id      string // the first four digits of its UUID
	address string // ssl:ADDRESS:PORT
	self    bool
	heard   time.Duration // since its last message; negative: it has sent none
}

// serverLine is "b7a5 (b7a5 at ssl:192.0.2.1:6643) (self) next_index=5 match_index=4 last msg 55 ms ago".
var serverLine = regexp.MustCompile(`(?m)^ +\S+ \(([0-9a-f]+) at (\S+)\)(.*)$`)

var lastMessage = regexp.MustCompile(`last msg (\d+) ms ago`)

func parseStatus(text string) (status, error) {
	field := func(name string) string {
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, name+": "); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	s := status{leader: field("Role") == "leader"}
	switch state := field("Status"); state {
	case "cluster member":
		s.joined = true
	case "joining cluster":
		s.joining = true
	case "left cluster":
		s.removed = true
	case "":
		return status{}, fmt.Errorf("the answer to cluster/status has no status: %.100q", text)
	}
	ms, err := strconv.ParseInt(field("Election timer"), 10, 64)
	if err != nil && s.joined {
		return status{}, fmt.Errorf("the answer to cluster/status has no election timer: %.100q", text)
	}
	s.timer = time.Duration(ms) * time.Millisecond
	for _, m := range serverLine.FindAllStringSubmatch(text, -1) {
		one := server{id: m[1], address: m[2], self: strings.Contains(m[3], "(self)"), heard: -1}
		if last := lastMessage.FindStringSubmatch(m[3]); last != nil {
			ms, err := strconv.ParseInt(last[1], 10, 64)
			if err != nil {
				return status{}, err
			}
			one.heard = time.Duration(ms) * time.Millisecond
		}
		s.servers = append(s.servers, one)
	}
	return s, nil
}
