package agent

import (
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// After NB was replaced, no row says that a running pod has its address, until the agent of the pod's node has inserted
// the port again.
const (
	// newPortsPause is the time after a replacement in which an agent makes no new ports. All agents notice the
	// replacement within ten seconds, and then insert the ports of their pods.
	newPortsPause = 15 * time.Second
	// newPortsPauseLast is the longest such time. Until then an agent also waits for the end of its own repair pass.
	newPortsPauseLast = time.Minute
)

// newPorts reports whether this node may make new ports now. Its zero value allows it.
type newPorts struct {
	mu       sync.Mutex
	replaced int       // how often NB was replaced
	since    time.Time // of the last time
	repaired bool      // this agent's own ports are back since
}

// pause notes that NB was replaced.
func (n *newPorts) pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replaced++
	n.since, n.repaired = time.Now(), false
}

// replacements is how often NB was replaced until now. A repair pass notes it at its begin.
func (n *newPorts) replacements() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.replaced
}

// restored notes that a repair pass, which began after that many replacements, has nothing left to do.
func (n *newPorts) restored(replacements int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.repaired = n.repaired || n.replaced == replacements
}

// mayBegin returns an error as long as no new ports may be made.
func (n *newPorts) mayBegin() (replacements int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	since := time.Since(n.since)
	if n.replaced > 0 && since < newPortsPauseLast && (since < newPortsPause || !n.repaired) {
		return 0, ovnport.ExplainNotOwner(&ovndb.Replaced{Database: "NB"})
	}
	return n.replaced, nil
}

// mayKeep returns an error if NB was replaced since mayBegin: an address of the ports may be that of a running pod.
func (n *newPorts) mayKeep(replacements int) error {
	if n.replacements() == replacements {
		return nil
	}
	_, err := n.mayBegin()
	return err
}
