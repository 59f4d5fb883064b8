//go:build chaos

package chaos

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// While the agent is paused, so many ADDs begin at once, and so often.
const (
	pausedAtOnce = 4
	pausedTimes  = 2
)

// TestAgentPaused pauses a node's agent amid calls of the plugin. ADDs end with an error that names the agent, and
// are rolled back; DELs succeed. When the agent goes on, it finds the requests of calls that have ended, and pending
// releases.
func TestAgentPaused(t *testing.T) {
	s := newPodLoad(t, lab.Options{PluginConf: func(_ *lab.Node, entry map[string]any) { entry["timeout"] = "4s" }})
	agent := s.Nodes[0].Agent
	pid := agent.Pid()
	s.begin("web")
	s.step()
	s.Must(agent.Pause())
	begin := time.Now()
	var all sync.WaitGroup
	for i := range pausedAtOnce {
		all.Go(func() {
			for n := range pausedTimes {
				s.refusedByPause(fmt.Sprintf("paused-%d-%d", i, n))
			}
		})
	}
	all.Wait()
	paused := time.Since(begin)
	s.Must(agent.Resume())
	s.step()
	s.step()
	s.stop()
	row := Row{Fault: fmt.Sprintf("agent paused for %v", paused.Round(time.Second))}
	row.Lost, row.Residue = s.comesBack(s.nb)
	if !agent.Running() || agent.Pid() != pid {
		t.Errorf("the agent did not go on:\n%s", agent.LastLines(20))
	}
	report(t, s.finish(row))
}

// refusedByPause starts a pod on the node whose agent is paused, and ends it.
func (s *podLoad) refusedByPause(name string) {
	defer s.operation(time.Now())
	p := s.Pod(0, name, "blue,green")
	var e *types.Error
	err := s.TryAdd(p)
	if !errors.As(err, &e) || e.Code != conf.CodeTryAgain || !strings.Contains(e.Msg, "agent at "+p.Node.AgentSocket) {
		s.T.Errorf("the ADD of %s: %v; want code %d, with the agent's socket", p, err, conf.CodeTryAgain)
	}
	for ifName := range s.Links(p) {
		if strings.HasPrefix(ifName, "net") {
			s.T.Errorf("%s has %s after a failed ADD", p, ifName)
		}
	}
	s.End(p)
}
