package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// inOrder are the writes of an uninstall. Each one needs those before it.
var inOrder = []string{
	"delete network-attachment-definitions blue",
	"update daemonsets agent",
	"delete deployments controller",
	"delete daemonsets ovn-central",
	"update configmaps ovn-multinet-ovn",
	"update daemonsets ovn-node",
	"delete configmaps ovn-multinet-ovn",
	"delete configmaps ovn-multinet-ca",
	"delete secrets ovn-multinet-ca",
	"patch nodes one",
	"patch nodes two",
}

// withNetwork is a world whose release made a network.
func withNetwork(t *testing.T) *world {
	w := newWorld(t)
	w.networks = []string{"default/blue"}
	w.addNAD("default", "blue")
	return w
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withNetwork(t)
		if err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.writes, inOrder) {
			t.Errorf("the writes are\n%s", strings.Join(w.writes, "\n"))
		}
		w.uninstalled()
	})
}

// TestRunAgain interrupts an uninstall at each write, before the write has taken effect and after it. A second run does
// the rest, and writes nothing twice.
func TestRunAgain(t *testing.T) {
	for i, at := range inOrder {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, done %v", at, done), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := withNetwork(t)
					interrupt := errors.New("interrupted")
					w.fails = func(write string) (before, after error) {
						switch {
						case write != at:
							return nil, nil
						case done:
							return nil, interrupt
						}
						return interrupt, nil
					}
					if err := w.run(t.Context()); !errors.Is(err, interrupt) {
						t.Fatal(err)
					}
					first := i
					if done {
						first++
					}
					if !slices.Equal(w.writes, inOrder[:first]) {
						t.Errorf("the first run writes\n%s", strings.Join(w.writes, "\n"))
					}
					w.fails = nil
					if err := w.run(t.Context()); err != nil {
						t.Fatal(err)
					}
					w.uninstalled()
					if !slices.Equal(w.writes, inOrder) {
						t.Errorf("both runs write\n%s", strings.Join(w.writes, "\n"))
					}
				})
			})
		}
	}
}

// TestRefusal: an uninstall that cannot end well changes nothing, and says what is in its way.
func TestRefusal(t *testing.T) {
	pod := func(name, annotation string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
			Annotations: map[string]string{conf.NetworksAnnotation: annotation}}, Status: corev1.PodStatus{Phase: phase}}
	}
	for _, tt := range []struct {
		name string
		make func(w *world)
		want string
	}{
		{"a network", func(w *world) { w.addNAD("shop", "green") },
			"1 OVN networks exist: delete their pods and NetworkAttachmentDefinitions first: shop/green"},
		{"many networks", func(w *world) {
			for i := range 7 {
				w.addNAD("shop", fmt.Sprint("net-", i))
			}
		}, "7 OVN networks exist: delete their pods and NetworkAttachmentDefinitions first: " +
			"shop/net-0, shop/net-1, shop/net-2, shop/net-3, shop/net-4, …"},
		{"pods on the network of the release", func(w *world) {
			w.add(pod("web", "default/blue@net1", corev1.PodRunning))
			w.add(pod("waits", `[{"name":"blue","namespace":"default"}]`, corev1.PodPending))
			w.add(pod("ended", "default/blue", corev1.PodSucceeded))
			w.add(pod("other", "blue", corev1.PodRunning))
			w.add(pod("broken", "{", corev1.PodPending))
		}, "2 pods use the networks of the release: delete them first: shop/waits, shop/web"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := withNetwork(t)
				tt.make(w)
				if err := w.run(t.Context()); err == nil || err.Error() != tt.want {
					t.Errorf("got  %v\nwant %s", err, tt.want)
				}
				if len(w.writes) > 0 {
					t.Errorf("the writes are %q", w.writes)
				}
			})
		})
	}
}

// goes runs the uninstall beside the test.
func (w *world) goes(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	time.Sleep(10 * readEvery)
	synctest.Wait()
	return ended
}

// TestWaits: while a node has not finished a step, the next step does not begin, and the log says what the node waits
// for.
func TestWaits(t *testing.T) {
	for _, tt := range []struct{ name, set, says, logs string }{
		{"pods with other networks", agents, "waiting for 1 sandboxes with networks to end", ""},
		{"the agent does not answer", agents, "the agent still has to release the ports of 1 sandboxes", ""},
		{"an empty log", agents, "", "its pod agent-two has logged nothing yet"},
		{"Open vSwitch", switches, "wait for ovs-vswitchd", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := withNetwork(t)
				var done atomic.Bool
				w.says = func(p *corev1.Pod) string {
					if !done.Load() && p.Name == tt.set+"-two" {
						return tt.says
					}
					return conf.Uninstalled
				}
				ended := w.goes(t.Context())
				if last := w.writes[len(w.writes)-1]; last != "update daemonsets "+tt.set {
					t.Errorf("the last write is %s", last)
				}
				if want := "two: " + tt.says + tt.logs; !strings.Contains(w.log.String(), want) {
					t.Errorf("the log has no %q:\n%s", want, &w.log)
				}
				done.Store(true)
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				w.uninstalled()
			})
		})
	}
}

// TestTimeLimit: the error of an uninstall whose time is over says what it waits for.
func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withNetwork(t)
		w.says = func(*corev1.Pod) string { return "the agent does not answer" }
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second) // between two reads
		defer cancel()
		err := w.run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 nodes: one: the agent does not answer") {
			t.Error(err)
		}
	})
}

// TestNodeNotReady: nobody waits for a node that is not Ready, and the log names it.
func TestNodeNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := withNetwork(t)
		node, err := w.core.CoreV1().Nodes().Get(t.Context(), "two", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
		if err := w.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			t.Fatal(err)
		}
		w.says = func(p *corev1.Pod) string {
			if p.Spec.NodeName == "two" {
				return "nothing of the end"
			}
			return conf.Uninstalled
		}
		if err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.uninstalled()
		if want := `"nodes are not Ready, so nothing was removed from them" nodes=two`; !strings.Contains(w.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &w.log)
		}
	})
}

// TestRestored: when Helm restores the release, an uninstall that waits ends and does nothing more.
func TestRestored(t *testing.T) {
	for _, at := range []string{agents, switches} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := withNetwork(t)
				before := w.set(agents)
				w.says = func(p *corev1.Pod) string {
					if strings.HasPrefix(p.Name, at) {
						return "waiting"
					}
					return conf.Uninstalled
				}
				ended := w.goes(t.Context())
				if _, err := w.core.AppsV1().DaemonSets(namespace).Update(t.Context(), before, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				writes := len(w.writes)
				if err := <-ended; err == nil || !strings.Contains(err.Error(), "the release was restored") {
					t.Errorf("the uninstall ends with %v", err)
				}
				if len(w.writes) > writes {
					t.Errorf("after that it writes %q", w.writes[writes:])
				}
			})
		})
	}
}

// TestAuthorityOfOperator: without the authority's Secret, the ConfigMap with the authority is not ours.
func TestAuthorityOfOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.core.CoreV1().Secrets(namespace).Delete(t.Context(), "ovn-multinet-ca", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.core.CoreV1().ConfigMaps(namespace).Get(t.Context(), "ovn-multinet-ca", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}
