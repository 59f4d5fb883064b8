package agent

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// node is what all parts of the agent share: the connections, and one lock for each sandbox of the node.
type node struct {
	conf      conf.Agent
	source    Source
	nbdb      *ovndb.DB
	nb        *ovnport.NB
	ports     *ovnport.NodePorts
	ovs       *ovnport.OVS
	journal   journal.Dir
	subnets   *nodeSubnets
	policies  *policies
	profiles  *profiles
	newPorts  newPorts
	paths     *pathMTU
	uplinks   *nodeUplinks
	used      *usedOutside
	sandboxes *locks
	gone      *goneNetns
	metrics   *metrics
	log       *slog.Logger
}

// busy reports whether a call of the plugin holds the sandbox's lock.
func (n *node) busy(containerID string) bool { return n.journal.Locked(containerID) }

// releasing reports whether the sandbox has a pending release.
func (n *node) releasing(containerID string) bool { return n.journal.HasPendingRelease(containerID) }

// linkThere reports whether the host's network namespace, in which the agent runs, has a link of that name. It asks
// for the one name: a list of all links may have gaps while links come and go.
func linkThere(name string) (bool, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return false, nil // no link has such a name
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("look for link %s: %w", name, err)
	}
	defer unix.Close(fd)
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for link %s: %w", name, err)
	}
	return true, nil
}
