package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// callTimeout bounds the request of a plugin that does not say how long it waits.
const callTimeout = 60 * time.Second

// planTimeout bounds a plan, of which nothing takes long but a database or an API server that is away: kubelet has
// other pods to start meanwhile, and tries again.
const planTimeout = 20 * time.Second

// timeFor is the time that a request has: what the plugin waits, less what the answer may need.
func (a *Agent) timeFor(r *agentapi.Request) time.Duration {
	limit := callTimeout
	if r.Timeout > 0 {
		waits := time.Duration(r.Timeout) * time.Millisecond
		limit = waits - min(time.Second, waits/5)
	}
	if r.Op == agentapi.OpPlan {
		return min(limit, a.planTimeout)
	}
	return limit
}

// listen makes the socket, for root alone. A socket that an agent of before left is replaced; one that an agent
// answers on is an error.
func listen(path string) (*net.UnixListener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("socket %s: another agent is serving it", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// The socket is made under another name, so that nobody can connect before it is closed to others.
	fresh := path + ".new"
	_ = os.Remove(fresh)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serve accepts plugins until the end of ctx and then waits for the calls that run.
func (a *Agent) serve(ctx context.Context, l *net.UnixListener) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	// The second caller of shut waits for the first: when serve returns, no plugin connects any more, and the next
	// agent may listen.
	shut := sync.OnceFunc(func() { _ = l.Close() })
	defer shut() // a plugin may come between the end of ctx and what follows it
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept on %s: %w", a.conf.Socket, err)
		}
		calls.Go(func() {
			defer conn.Close()
			if err := a.converse(ctx, conn); err != nil {
				a.log.Warn("connection of a plugin", "err", err)
			}
		})
	}
}

// converse answers the requests of one plugin process. Reading goes on while a request is served, so that a plugin
// that ends is noticed and its request given up.
func (a *Agent) converse(ctx context.Context, conn *net.UnixConn) error {
	if err := checkPeer(conn); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errPluginGone)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	requests := make(chan *agentapi.Request)
	ended := make(chan error, 1)
	go func() {
		defer cancel(errPluginGone)
		inbox := &agentapi.Inbox{Conn: conn}
		reader := agentapi.NewReader(inbox)
		for {
			r := &agentapi.Request{}
			err := reader.Read(r)
			r.Sockets = inbox.Take()
			if err != nil {
				agentapi.CloseSockets(r.Sockets)
				ended <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				agentapi.CloseSockets(r.Sockets)
				ended <- ctx.Err()
				return
			}
		}
	}()
	var planned time.Time // when the plan was answered
	for {
		select {
		case r := <-requests:
			if r.Op == agentapi.OpAlive { // kubelet asks all the time: neither a line in the log nor a metric
				_ = agentapi.Write(conn, agentapi.Response{Version: agentapi.AnswerVersion(r.Version)})
				continue
			}
			if r.Op == agentapi.OpNextChange { // it asks all the time too
				a.answerNextChange(ctx, conn, r)
				continue
			}
			if r.Op == agentapi.OpBind && !planned.IsZero() {
				a.metrics.phases.WithLabelValues(phasePlugin).Observe(time.Since(planned).Seconds())
			}
			a.answer(ctx, conn, r)
			a.closeSockets(r.Sockets) // those that the request did not need
			if r.Op == agentapi.OpPlan {
				planned = time.Now()
			}
		case err := <-ended:
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// errPluginGone is the cause of a request's cancellation when its plugin has closed the connection. When the agent
// stops, the cause is context.Canceled.
var errPluginGone = errors.New("the plugin has closed the connection")

// checkPeer lets in root alone, whatever the socket's mode became.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if cred.Uid != 0 && cred.Uid != uint32(os.Getuid()) {
		return fmt.Errorf("refused a peer with uid %d: only root may ask", cred.Uid)
	}
	return nil
}

// answer serves one request and logs it in one line.
func (a *Agent) answer(ctx context.Context, conn io.Writer, r *agentapi.Request) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, a.timeFor(r))
	defer cancel()
	var s agentapi.Sandbox
	delivered := false
	deliver := func(body any) error {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		err = agentapi.Write(conn, agentapi.Response{
			Version: agentapi.AnswerVersion(r.Version), Body: text, Garbage: a.reconciler.staleForPlugin(),
		})
		if errors.Is(err, agentapi.ErrTooLarge) { // and nothing was written
			return conf.Errorf(conf.CodeInvalidConfig, "name fewer networks in the pod's annotation "+conf.NetworksAnnotation,
				"answer to %s: %w: %w", r.Op, errNotSent, err)
		}
		delivered = true
		if err != nil {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
		return nil
	}
	err := a.dispatch(ctx, r, &s, deliver)
	if err != nil && !delivered {
		refusal := agentapi.NewError(err)
		refusal.Clean = r.Op == agentapi.OpPlan && clean(ctx, err)
		_ = agentapi.Write(conn, agentapi.Response{
			Version: agentapi.AnswerVersion(r.Version), Error: refusal, Garbage: a.reconciler.staleForPlugin(),
		})
	}
	took := time.Since(began)
	a.metrics.observe(r.Op, err, took)
	log := a.log.With("op", r.Op, "pod", s.Namespace+"/"+s.Pod, "containerID", s.ContainerID,
		"took", took.Round(10*time.Microsecond))
	if err != nil {
		log.Warn("refused", "err", conf.Brief(err))
		return
	}
	log.Info("served")
}

// deliver sends the answer; an error says that the plugin did not get it.
type deliver func(body any) error

func (a *Agent) dispatch(ctx context.Context, r *agentapi.Request, s *agentapi.Sandbox, send deliver) (err error) {
	defer a.catch(&err)
	if err := agentapi.CheckVersion(r.Version); err != nil {
		return err
	}
	switch r.Op {
	case agentapi.OpPlan:
		return serveOp(ctx, r, send, func(b *agentapi.PlanRequest) *agentapi.Sandbox { return &b.Sandbox }, s, a.plan)
	case agentapi.OpBind:
		bind := func(ctx context.Context, b *agentapi.BindRequest, send deliver) error {
			take := func() []*os.File {
				sockets := r.Sockets
				r.Sockets = nil
				return sockets
			}
			return a.bind(ctx, b, take, send)
		}
		return serveOp(ctx, r, send, func(b *agentapi.BindRequest) *agentapi.Sandbox { return &b.Sandbox }, s, bind)
	case agentapi.OpRelease:
		return serveOp(ctx, r, send, func(b *agentapi.Release) *agentapi.Sandbox { return &b.Sandbox }, s, a.release)
	case agentapi.OpCheck:
		return serveOp(ctx, r, send, func(b *agentapi.CheckRequest) *agentapi.Sandbox { return &b.Sandbox }, s, a.check)
	case agentapi.OpStatus:
		return serveOp(ctx, r, send, func(b *agentapi.StatusRequest) *agentapi.Sandbox { return &b.Sandbox }, s, a.status)
	case agentapi.OpChange:
		return serveOp(ctx, r, send, func(b *agentapi.ChangeRequest) *agentapi.Sandbox { return &b.Sandbox }, s, a.change)
	case agentapi.OpFailedDELs:
		sandboxOf := func(b *agentapi.FailedDELsRequest) *agentapi.Sandbox { return &b.Sandbox }
		return serveOp(ctx, r, send, sandboxOf, s, a.listFailedDELs)
	case agentapi.OpGC:
		return serveOp(ctx, r, send, func(b *agentapi.GCRequest) *agentapi.Sandbox { return &b.Sandbox }, s, a.gc)
	case agentapi.OpForget:
		return serveOp(ctx, r, send, func(b *agentapi.ForgetRequest) *agentapi.Sandbox { return &b.Sandbox }, s, a.forget)
	}
	return conf.Errorf(conf.CodeTryAgain, otherVersions, "operation %q is not known", r.Op)
}

// catch turns a panic into an error. It has to be deferred, in each goroutine that serves a request.
func (n *node) catch(err *error) {
	if cause := recover(); cause != nil {
		*err = conf.Errorf(conf.CodeInternal, "a defect in ovn-multinet, see the agent's log", "panic: %v", cause)
		n.log.Error("panic", "cause", cause, "stack", string(debug.Stack()))
	}
}

const otherVersions = "plugin and agent are of different versions: finish the upgrade of this node"

// serveOp decodes a request and serves it.
func serveOp[T any](
	ctx context.Context, r *agentapi.Request, send deliver, sandboxOf func(*T) *agentapi.Sandbox, s *agentapi.Sandbox,
	run func(context.Context, *T, deliver) error,
) error {
	body := new(T)
	if err := json.Unmarshal(r.Body, body); err != nil {
		return conf.Errorf(conf.CodeDecoding, otherVersions, "request %s: %w", r.Op, err)
	}
	*s = *sandboxOf(body)
	return run(ctx, body, send)
}
