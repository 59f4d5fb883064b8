package source

import "sync"

// ends knows who waits for the end of a pod.
type ends struct {
	mu    sync.Mutex
	waits map[*wait]bool
}

type wait struct {
	pod  *Pod
	call func()
}

// when has call called once, when the pod ends. stop ends the wait.
func (e *ends) when(p *Pod, call func()) (stop func()) {
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

// tell calls those whose pod has ended.
func (e *ends) tell(ended func(*Pod) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waits {
		if ended(w.pod) {
			delete(e.waits, w)
			w.call()
		}
	}
}
