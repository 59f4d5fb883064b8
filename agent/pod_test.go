package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// oneLive is a source with one pod, or an error, as the answer to each question that is asked live.
type oneLive struct {
	*pods
	pod *source.Pod
	err error
}

func (l *oneLive) LivePod(context.Context, string, string) (*source.Pod, error) { return l.pod, l.err }

// TestPodGoneOnlyIfItIs: code 107 says that nothing is to be done. It is for a pod that is gone or has another UID; a
// source that cannot tell is passing trouble, and no defect of ours.
func TestPodGoneOnlyIfItIs(t *testing.T) {
	gone := fmt.Errorf("shop/web: %w", source.ErrNotFound)
	down := errors.New("connection refused")
	older := ovnport.Owner{Namespace: "shop", Pod: "web", UID: "u-0"}
	for _, tt := range []struct {
		name string
		pod  *source.Pod
		err  error
		code uint
		want string // "": no error
	}{
		{"the live one", &source.Pod{UID: "u-1"}, nil, 0, ""},
		{"another is the live one", &source.Pod{UID: "u-2"}, nil, conf.CodePodGone, "pod shop/web with UID u-1 is gone"},
		{"gone", nil, gone, conf.CodePodGone, "pod shop/web with UID u-1 is gone"},
		{"the source is away", nil, down, conf.CodeTryAgain, "pod shop/web: connection refused"},
	} {
		t.Run("takes ports over: "+tt.name, func(t *testing.T) {
			a := &node{source: &oneLive{&pods{}, tt.pod, tt.err}}
			err := a.mayTakeOver(t.Context(), &ovnport.Owner{Namespace: "shop", Pod: "web", UID: "u-1"}, &older)
			if tt.want != "" {
				wantCoded(t, err, tt.code, tt.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	pod := &source.Pod{Namespace: "shop", Name: "web"}
	t.Run("status: gone", func(t *testing.T) {
		wantCoded(t, statusError(pod, gone), conf.CodePodGone, "pod shop/web: network-status: shop/web: pod not found")
	})
	t.Run("status: the source is away", func(t *testing.T) {
		wantCoded(t, statusError(pod, down), conf.CodeTryAgain, "pod shop/web: network-status: connection refused")
	})
}
