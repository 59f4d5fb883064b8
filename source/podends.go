package source

import (
	"sync"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// ends has the functions to call when pods end.
type ends struct {
	mu    sync.Mutex
	waits map[*wait]bool
}

type wait struct {
	pod  *netmodel.Pod
	call func()
}

// when registers a function that tell calls once, after the pod has ended. stop removes the function.
func (e *ends) when(p *netmodel.Pod, call func()) (stop func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &wait{p, call}
	if e.waits == nil {
		e.waits = map[*wait]bool{}
	}
	e.waits[w] = true
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waits, w)
	}
}

// tell calls and removes the functions of the pods for which ended returns true.
func (e *ends) tell(ended func(*netmodel.Pod) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waits {
		if ended(w.pod) {
			delete(e.waits, w)
			w.call()
		}
	}
}
