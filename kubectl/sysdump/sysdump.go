// Package sysdump owns the archive that `kubectl multinet sysdump` writes: what a developer needs to understand a
// broken installation. It reads by the API server alone, and changes nothing. Only what is allowed gets into the
// archive: each object is decoded into a type that has the allowed fields and no others.
package sysdump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Config says what to collect.
type Config struct {
	Client    rest.Interface // of any API group; only its paths from the root are used
	Namespace string         // of NADs, policies, IPAMClaims, pods and Events; "": all
	File      string         // the archive, which must not exist
	Timeout   time.Duration  // until the archive is there
	Outputs   []Output
}

// Output is what a command writes into a file of the archive.
type Output struct {
	Name string // of the file
	// Run writes what the command prints. An error says what the output lacks. The output is kept in any case. Run may
	// return late, or never: it is not waited for then.
	Run func(ctx context.Context, out io.Writer) error
}

// ErrNone is the error of an Output that this cluster cannot have. It is noted, and nothing is missing then.
var ErrNone = errors.New("this cluster has none")

// Result is what was written.
type Result struct {
	Size    int64 // of the archive, in bytes
	Missing int   // the number of lines in missing.txt
}

// parallel is how many files are collected at the same time: all kinds and outputs, so that none of them waits for
// another one that hangs.
const parallel = 24

// bounds limit the memory that is used, and the size of the archive. All are before compression.
type bounds struct {
	objects  int   // of a kind
	file     int64 // bytes of a file with objects or of an output
	logLines int   // of a container
	logBytes int   // of a container
	total    int64 // bytes of the archive
}

var usual = bounds{objects: 5000, file: 16 << 20, logLines: 5000, logBytes: 2 << 20, total: 256 << 20}

var (
	errTime = errors.New("no answer before the time was over (--timeout)")
	errTurn = errors.New("the time was over before its turn (--timeout)")
	errFile = errors.New("the rest is missing: the file has the largest size that a file may have")
)

// Write collects and writes the archive. What cannot be collected is listed in the archive. An error says that there is
// no archive. If ctx ends, nothing is written.
func Write(ctx context.Context, config Config) (*Result, error) { return write(ctx, config, usual) }

func write(ctx context.Context, config Config, most bounds) (*Result, error) {
	began := time.Now()
	a, err := create(config.File, began, most.total)
	if err != nil {
		return nil, err
	}
	defer a.discard()
	// Whoever hears the end of collecting has a moment to hand over what it has; over ends the wait for the others.
	reserve := min(config.Timeout/5, 5*time.Second)
	over, end := context.WithTimeout(ctx, config.Timeout-reserve/2)
	defer end()
	collecting, stop := context.WithTimeout(over, config.Timeout-reserve)
	defer stop()
	c := &collector{Config: config, bounds: most, archive: a, over: over}
	c.collect(collecting)
	if err := ctx.Err(); err != nil {
		return nil, errors.New("interrupted: there is no archive")
	}
	missing, texts := c.texts(began)
	for _, t := range texts {
		a.addText(t.name, t.text)
	}
	size, err := a.publish()
	if err != nil {
		return nil, err
	}
	return &Result{size, missing}, nil
}

// collector collects the files of one archive.
type collector struct {
	Config
	bounds
	archive *archive
	over    context.Context // nobody is waited for when it has ended

	mu      sync.Mutex
	missing []string // lines
	omitted []string // lines
	none    []string // what this cluster cannot have
}

// task makes a file of the archive. run may be abandoned, so it writes only into its file, and what it finds may be
// read only if do reports that run has returned.
type task struct {
	name string
	run  func(ctx context.Context, out io.Writer) error
}

// collect makes all files.
func (c *collector) collect(ctx context.Context) {
	var ours ourPods
	var nodes nodeStates
	// Logs need these two, so the others wait for them, but not for the whole time.
	first, cancel := context.WithTimeout(ctx, c.Timeout/3)
	defer cancel()
	var both errgroup.Group
	known := [2]bool{}
	for i, t := range []task{c.ownPods(&ours), c.nodes(&nodes)} {
		both.Go(func() error {
			known[i] = c.do(first, t)
			return nil
		})
	}
	_ = both.Wait()
	if !known[0] {
		ours.pods = nil
	}
	if !known[1] {
		nodes.silent = nil
	}
	var all errgroup.Group
	all.SetLimit(parallel)
	for _, t := range slices.Concat(c.outputs(), c.objects()) {
		all.Go(func() error {
			c.do(ctx, t)
			return nil
		})
	}
	for _, logs := range c.logs(ours.pods, nodes.silent) {
		all.Go(func() error {
			c.logsOfNode(ctx, logs)
			return nil
		})
	}
	_ = all.Wait()
}

// outputs are the tasks of the commands.
func (c *collector) outputs() (all []task) {
	for _, o := range c.Outputs {
		all = append(all, task{o.Name, o.Run})
	}
	return all
}

// do makes a file and puts it into the archive with what it has, also after an error. It reports whether run has
// returned.
func (c *collector) do(ctx context.Context, t task) (returned bool) {
	if ctx.Err() != nil {
		c.miss(t.name, errTurn)
		return false
	}
	out, err := newSpool(c.archive.folder(), c.file)
	if err != nil {
		c.miss(t.name, err)
		return false
	}
	done, abandoned := make(chan error, 1), make(chan struct{})
	go func() {
		done <- t.run(ctx, out)
		<-abandoned
		out.close()
	}()
	defer close(abandoned)
	select {
	case err = <-done:
	case <-c.over.Done():
		c.miss(t.name, errTime)
		return false
	}
	if err != nil {
		c.failed(ctx, t.name, err)
	}
	if out.size > 0 {
		if err := c.archive.add(t.name, out.size, out.file); err != nil {
			c.miss(t.name, err)
		}
	}
	return true
}

// failed notes why a file is not complete.
func (c *collector) failed(ctx context.Context, name string, err error) {
	switch {
	case errors.Is(err, ErrNone):
		c.note(&c.none, name+": "+conf.OneLine(err.Error(), conf.MaxReason))
	case errors.Is(err, errFile):
		c.miss(name, errFile)
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		c.miss(name, errTime)
	default:
		if status, is := errors.AsType[*apierrors.StatusError](err); is && (err.Error() == "" || err.Error() == "unknown") {
			err = fmt.Errorf("the API server, or a proxy before it, answers with code %d", status.ErrStatus.Code)
		}
		c.miss(name, err)
	}
}

func (c *collector) miss(name string, err error) {
	c.note(&c.missing, fmt.Sprintf("%s: %s", name, conf.OneLine(err.Error(), conf.MaxReason)))
}

func (c *collector) omit(format string, args ...any) {
	c.note(&c.omitted, conf.OneLine(fmt.Sprintf(format, args...), conf.MaxReason))
}

func (c *collector) note(list *[]string, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*list = append(*list, line)
}
