package members

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ConfigMapName is the ConfigMap with the list.
const ConfigMapName = "ovn-multinet-ovn"

// The keys of the ConfigMap, which are also the files of its mounted folder.
const (
	ListKey   = "members"
	FormedKey = "formed"
)

// The ports that OVN uses for its databases: for clients, and between the members of a raft.
const (
	NBPort     = "6641"
	SBPort     = "6642"
	NBRaftPort = "6643"
	SBRaftPort = "6644"
)

// Member is a node with the databases.
type Member struct {
	Node string
	IP   netip.Addr
	// ID is new each time that a node becomes a member. A database of an earlier time is not the member's.
	ID string
}

// List is all members. The first one makes the databases, as long as they are not formed; all others join them.
type List struct {
	Members []Member
	// Formed tells that the databases exist. From then on nobody makes empty ones.
	Formed bool
}

// String is the text of the key [ListKey]: a line for each member.
func (l List) String() string {
	var text strings.Builder
	for _, m := range l.Members {
		fmt.Fprintf(&text, "%s %s %s\n", m.Node, m.IP, m.ID)
	}
	return text.String()
}

// Parse reads the text of the key [ListKey].
func Parse(text string) (l List, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 3 {
			return List{}, fmt.Errorf("members: %q is not a line NODE ADDRESS ID", strings.TrimSpace(line))
		}
		ip, err := netip.ParseAddr(words[1])
		if err != nil {
			return List{}, fmt.Errorf("members: node %s: %w", words[0], err)
		}
		if _, twice := l.Of(words[0]); twice {
			return List{}, fmt.Errorf("members: node %s is listed twice", words[0])
		}
		l.Members = append(l.Members, Member{words[0], ip, words[2]})
	}
	return l, nil
}

// Of returns the member of a node.
func (l List) Of(node string) (Member, bool) {
	for _, m := range l.Members {
		if m.Node == node {
			return m, true
		}
	}
	return Member{}, false
}

// Endpoints are the addresses of all members at a port: ssl:ADDRESS:PORT.
func (l List) Endpoints(port string) []string {
	endpoints := make([]string, len(l.Members))
	for i, m := range l.Members {
		endpoints[i] = Endpoint(m.IP, port)
	}
	return endpoints
}

// Endpoint is ssl:ADDRESS:PORT.
func Endpoint(ip netip.Addr, port string) string { return "ssl:" + net.JoinHostPort(ip.String(), port) }

// Read reads the mounted folder of the ConfigMap. Without the file there are no members yet.
func Read(dir string) (List, error) {
	text, err := os.ReadFile(filepath.Join(dir, ListKey))
	if errors.Is(err, fs.ErrNotExist) {
		return List{}, nil
	}
	if err != nil {
		return List{}, err
	}
	l, err := Parse(string(text))
	if err != nil {
		return List{}, err
	}
	_, err = os.Stat(filepath.Join(dir, FormedKey))
	l.Formed = err == nil
	return l, nil
}

// readEvery is the time between two reads of the folder. kubelet needs up to a minute to change a mounted ConfigMap.
const readEvery = 2 * time.Second

// Follow calls change with the list, and again each time that the list has changed, until the end of ctx. A list that
// does not parse changes nothing.
func Follow(ctx context.Context, dir string, log *slog.Logger, change func(List)) {
	last, said, first := "", "", true
	wait.UntilWithContext(ctx, func(context.Context) {
		l, err := Read(dir)
		switch now := fmt.Sprint(l, l.Formed); {
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Error("cannot read the members of OVN's databases; keeping the last ones", "err", err)
		case err == nil && (first || now != last):
			first, last, said = false, now, ""
			change(l)
		}
	}, readEvery)
}
