package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// BenchmarkPod attaches and deletes a pod with k further networks on one node. Reported beside the chain's time are
// our own plugin's share and the ratio of that to the rest of the chain (Flannel, bridge, host-local, portmap) in the
// same run: times of different machines do not compare, ratios do.
func BenchmarkPod(b *testing.B) {
	w := newWorld(b, lab.Options{}, nil)
	for _, k := range []int{0, 1, 4, 8} {
		b.Run(fmt.Sprintf("k=%d", k), func(b *testing.B) {
			networks := strings.Split(strings.TrimSuffix(strings.Repeat("blue,green,", 4), ","), ",")[:k]
			n := w.Nodes[0]
			ours, others := map[string]time.Duration{}, map[string]time.Duration{}
			i := 0
			for b.Loop() {
				i++
				b.StopTimer()
				p := w.pod(0, fmt.Sprintf("web-%d-%d", k, i), strings.Join(networks, ","))
				n.ForgetRuns()
				b.StartTimer()
				w.add(p)
				w.del(p)
				b.StopTimer()
				for _, run := range n.Runs() {
					if run.Plugin == lab.PluginType {
						ours[run.Command] += run.Took
					} else {
						others[run.Command] += run.Took
					}
				}
				w.end(p)
				b.StartTimer()
			}
			for _, command := range []string{"ADD", "DEL"} {
				b.ReportMetric(float64(ours[command].Microseconds())/1000/float64(i), "ms-ours/"+command)
				b.ReportMetric(float64(ours[command])/float64(others[command]), "ours:rest/"+command)
			}
		})
	}
}
