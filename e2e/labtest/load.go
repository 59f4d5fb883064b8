package labtest

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Load makes a new TCP connection to an address again and again, and does not wait for the connections before it.
type Load struct {
	test Test
	stop chan struct{}
	all  sync.WaitGroup

	mu       sync.Mutex
	finished []connection
	begun    int
	most     int // how many connections may begin until the next call of More
}

type connection struct {
	began time.Time
	took  time.Duration
	err   error
}

// loadAhead is how many connections begin while nobody waits for them: on a slow machine, a load makes no more
// connections than on a fast one.
const loadAhead = 150

// loadPatience is how long a connection may take: it is lost only if no repeated packet of it is answered either.
const loadPatience = 10 * time.Second

// Load starts a load. do runs a function in the client's network namespace. A connection succeeds if the server answers
// the request with anything.
func (t Test) Load(do func(func() error) error, to, request string, every time.Duration) *Load {
	l := &Load{test: t, stop: make(chan struct{}), most: loadAhead}
	l.all.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-ticker.C:
			}
			if !l.mayBegin() {
				continue
			}
			l.all.Go(func() {
				began := time.Now()
				err := do(func() error { return connect(to, request) })
				l.mu.Lock()
				defer l.mu.Unlock()
				l.finished = append(l.finished, connection{began, time.Since(began), err})
			})
		}
	})
	t.T.Cleanup(l.end)
	return l
}

func (l *Load) mayBegin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun >= l.most {
		return false
	}
	l.begun++
	return true
}

// nextPort numbers the connections of all loads.
var nextPort atomic.Uint32

// dial connects from another port each time. The kernel may choose a port again some seconds after a connection from it
// has ended, and ovs-vswitchd 3.1 with the userspace datapath does not survive that on a network with load balancers.
func dial(to string) (c net.Conn, err error) {
	const first, ports = 10000, 50000
	for range 10 {
		from := &net.TCPAddr{Port: first + int(nextPort.Add(1)%ports)}
		c, err = (&net.Dialer{Timeout: loadPatience, LocalAddr: from}).Dial("tcp", to)
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return c, err
}

func connect(to, request string) error {
	c, err := dial(to)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(loadPatience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(request)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// More waits until some more connections have begun and ended.
func (l *Load) More(count int) {
	since := time.Now()
	l.mu.Lock()
	l.most = l.begun + count + loadAhead
	l.mu.Unlock()
	l.test.Eventually(func() error {
		if n, _, _ := l.Since(since); n < count {
			return fmt.Errorf("%d connections have ended, want %d", n, count)
		}
		return nil
	})
}

// Since counts the connections that began after a time and have ended, and those of them that failed. slowest is how
// long the slowest of the others took.
func (l *Load) Since(when time.Time) (ended int, failed []error, slowest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.finished {
		switch {
		case c.began.Before(when):
			continue
		case c.err != nil:
			failed = append(failed, fmt.Errorf("%s after that: %w", c.began.Sub(when), c.err))
		default:
			slowest = max(slowest, c.took)
		}
		ended++
	}
	return ended, failed, slowest
}

// Over ends the load, and wants that no connection has failed that began after a time.
func (l *Load) Over(what string, since time.Time) {
	l.end()
	ended, failed, slowest := l.Since(since)
	l.test.T.Logf("%s: %d of %d connections failed, the slowest other one took %s", what, len(failed), ended, slowest)
	if len(failed) > 0 || ended == 0 {
		l.test.T.Errorf("%s: %d of %d connections failed, such as: %v", what, len(failed), ended, failed[:min(3, len(failed))])
	}
}

// end waits for the connections that are open. A load may end more than once.
func (l *Load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.all.Wait()
}
