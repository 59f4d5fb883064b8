package outside

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// states writes the states of pods' outside addresses.
type states struct {
	engine.Verdicts[verdict]
	source  Source
	leading func() error
}

type verdict struct {
	pod   *netmodel.Pod
	state netmodel.OutsideState
}

func newStates(c Config) *states {
	s := &states{engine.NewVerdicts[verdict]("pod", c.Log), c.Source, c.Engine.Leading}
	s.Write = s.writeState
	return s
}

// found is what a pass has found for the interfaces of a pod, in sentences.
type found map[netmodel.OutsideReason][]string

func (f found) add(reason netmodel.OutsideReason, ifName, text string) {
	if ifName != "" {
		text = "interface " + ifName + ": " + text
	}
	f[reason] = append(f[reason], text)
}

// state is the state of the pod. The worst decides, and is said first.
func (f found) state() (state netmodel.OutsideState) {
	var all []string
	for _, reason := range []netmodel.OutsideReason{
		netmodel.OutsideRefused, netmodel.OutsideWaits, netmodel.OutsideReady,
	} {
		if texts := f[reason]; len(texts) > 0 {
			if state.Reason == "" {
				state.Reason = reason
			}
			slices.Sort(texts)
			all = append(all, texts...)
		}
	}
	// the message may contain text of tenants
	state.Message = conf.OneLine(strings.Join(all, "; "), conf.MaxReason)
	return state
}

// writeState writes a verdict onto its pod and records an Event, unless the pod has this state already. It compares the
// verdict with the pod as it is now, because an earlier verdict may have been written meanwhile.
func (s *states) writeState(ctx context.Context, id string, v *verdict) error {
	if err := s.leading(); err != nil {
		return err
	}
	pods, err := s.source.PolicyPods(ctx, v.pod.Namespace)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(pods, func(p *netmodel.Pod) bool { return p.Name == v.pod.Name && p.UID == v.pod.UID })
	if at < 0 {
		return fmt.Errorf("pod %s: %w", id, netmodel.ErrNotFound)
	}
	pod := pods[at]
	if pod.OutsideState == v.state {
		return nil
	}
	if err := s.source.SetOutsideState(ctx, pod, v.state); err != nil {
		return err
	}
	switch v.state.Reason {
	case netmodel.OutsideRefused:
		s.source.OutsideEvent(pod, true, string(v.state.Reason), v.state.Message)
	case netmodel.OutsideReady:
		s.source.OutsideEvent(pod, false, string(v.state.Reason), v.state.Message)
	}
	return nil
}
