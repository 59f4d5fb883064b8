package sysdump

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
)

// nodeLogs are the logs of a node. They are read one after the other: a node that does not answer takes one place only.
type nodeLogs struct {
	node   string
	silent bool // kubelet does not report
	sick   bool // a container is not ready, or was started again
	logs   []containerLog
}

// containerLog is a log of a container.
type containerLog struct {
	pod, container string
	previous       bool
}

// logs returns the logs by node: first those of nodes that answer, and of these first those with pods that do not run
// as they should.
func (c *collector) logs(pods []*ownPod, silent map[string]bool) []*nodeLogs {
	byNode := map[string]*nodeLogs{}
	for _, p := range pods {
		node := p.Spec.NodeName
		if node == "" {
			continue // it has never run
		}
		if byNode[node] == nil {
			byNode[node] = &nodeLogs{node: node, silent: silent[node]}
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if !p.isOurs(s.Name) {
				c.omit("the log of container %s of pod %s: the chart has no such container", s.Name, p.Metadata.Name)
				continue
			}
			byNode[node].add(p.Metadata.Name, &s)
		}
	}
	return slices.SortedFunc(maps.Values(byNode), func(a, b *nodeLogs) int {
		return cmp.Or(order(a.silent, b.silent), order(b.sick, a.sick), cmp.Compare(a.node, b.node))
	})
}

// order sorts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (n *nodeLogs) add(pod string, s *corev1.ContainerStatus) {
	last := s.LastTerminationState.Terminated
	n.sick = n.sick || !s.Ready || s.RestartCount > 0
	if s.ContainerID != "" || s.State.Running != nil || s.State.Terminated != nil {
		n.logs = append(n.logs, containerLog{pod, s.Name, false})
	}
	// While a container waits for its next start, its log is that of the former one.
	if last != nil && (last.ContainerID != s.ContainerID || s.ContainerID == "") {
		n.logs = append(n.logs, containerLog{pod, s.Name, true})
	}
}

// logsOfNode reads the logs of a node until one of them gets no answer.
func (c *collector) logsOfNode(ctx context.Context, n *nodeLogs) {
	for i, l := range n.logs {
		one, cancel := context.WithTimeout(ctx, c.Timeout/6)
		c.do(one, task{l.file(), func(ctx context.Context, out io.Writer) error { return c.log(ctx, l, out) }})
		hangs := errors.Is(one.Err(), context.DeadlineExceeded) && ctx.Err() == nil
		cancel()
		if hangs {
			for _, other := range n.logs[i+1:] {
				c.miss(other.file(), fmt.Errorf("node %s did not answer for another log", n.node))
			}
			return
		}
	}
}

// file is the name of the log in the archive.
func (l *containerLog) file() string {
	name := l.container + ".log"
	if l.previous {
		name = l.container + ".previous.log"
	}
	return path.Join("logs", l.pod, name)
}

// log writes the end of a log. The API's limit of bytes would keep the beginning, so only the lines are limited there.
func (c *collector) log(ctx context.Context, l containerLog, out io.Writer) error {
	body, err := c.Client.Get().AbsPath(coreGroup, "namespaces", check.Namespace, "pods", l.pod, "log").
		Param("container", l.container).Param("previous", strconv.FormatBool(l.previous)).
		Param("tailLines", strconv.Itoa(c.logLines+1)).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	end := &tail{most: c.logBytes}
	_, err = io.Copy(end, body)
	text, short := end.lines(c.logLines)
	if short {
		c.omit("%s: lines before the last %d, or before the last %d bytes", l.file(), c.logLines, c.logBytes)
		text = slices.Concat(fmt.Appendf(nil, "(sysdump: earlier lines are not in this file: it has the last %d lines, and "+
			"of these the last %d bytes)\n", c.logLines, c.logBytes), text)
	}
	if err != nil {
		err = fmt.Errorf("the rest is missing: %w", err)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	_, written := out.Write(text)
	return errors.Join(err, written)
}

// tail keeps the last bytes of what is written.
type tail struct {
	most int
	text []byte
	cut  bool
}

// Write keeps at most twice the bytes in memory, so that it seldom moves them.
func (t *tail) Write(text []byte) (int, error) {
	n := len(text)
	t.text = append(t.text, text[max(0, n-t.most):]...)
	t.cut = t.cut || n > t.most
	if len(t.text) > 2*t.most {
		t.shorten()
	}
	return n, nil
}

func (t *tail) shorten() {
	if over := len(t.text) - t.most; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
		t.cut = true
	}
}

// lines returns the last lines, and reports whether there were others before them.
func (t *tail) lines(most int) (text []byte, short bool) {
	t.shorten()
	text = t.text
	if t.cut { // the first line may have lost its beginning
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	for n := bytes.Count(text, []byte("\n")); n > most; n-- {
		text, t.cut = text[bytes.IndexByte(text, '\n')+1:], true
	}
	return text, t.cut
}
