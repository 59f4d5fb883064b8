//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func command(stdin string, env []string, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout = env, strings.NewReader(stdin), &bytes.Buffer{}
	return cmd
}

// ours is one of the product's programs, as it is shipped.
func ours(t testing.TB, program string) string {
	path := filepath.Join(os.Getenv("OVN_MULTINET_BIN"), program)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("OVN_MULTINET_BIN names the folder of the programs as they are shipped (`make build`): %v", err)
	}
	return path
}

// TestPlain compares the plugin's part in a plain pod with a program that does nothing.
func TestPlain(t *testing.T) {
	plugin := ours(t, lab.PluginType)
	p := report(t, "10-plain", "A plain pod", `A pod without the annotation: our plugin's own process in the chain, beside a
program in Go with an empty main. Both are started by the same parent, in turns, in the same network namespace, with
the same input.`)
	l := lab.Start(t, lab.Options{})
	n := l.Nodes[0]
	pod := get[*lab.Pod](t)(n.NewPod(t.Context(), "shop", "plain", nil))
	stdin := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"cbr0","type":"ovn-multinet","agentSocket":%q,"stateDir":%q,
		"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"kubernetes.io/config.source":"api"}},
		"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":%q}],
		"ips":[{"address":"10.244.1.2/24","gateway":"10.244.1.1","interface":0}],"dns":{}}}`,
		n.AgentSocket, n.StateDir, pod.NetNS)
	for _, verb := range []string{"ADD", "DEL"} {
		env := []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + pod.Sandbox, "CNI_NETNS=" + pod.NetNS, "CNI_IFNAME=eth0",
			"CNI_PATH=" + filepath.Dir(plugin),
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=plain;K8S_POD_UID=" + pod.UID}
		var wall, cpu, faults [3][]float64
		for range *turns * 10 {
			for i, command := range [][]string{{plugin}, {peer("empty")}, {plugin, "--version"}} {
				c := get[cost](t)(timed(n.NetNS, stdin, env, command[0], command[1:]...))
				wall[i], cpu[i], faults[i] = append(wall[i], ms(c.wall)), append(cpu[i], ms(c.cpu)), append(faults[i], float64(c.faults))
			}
		}
		inTime := Compare(verb+", time", "ms", "empty program", wall[0], wall[1], 1.5)
		inTime.Bound = fmt.Sprintf("Of the %s ms, %s ms (%s of the empty program) are the start of this program: so long the plugin takes "+
			"to print its version. The runtime of Go starts a program of %s MB, with %s page faults, beside one of %s MB, with %s.",
			short(Median(wall[0])), short(Median(wall[2])), short(RatioOf(wall[2], wall[1]).Median), short(megabytes(t, plugin)),
			short(Median(faults[2])), short(megabytes(t, peer("empty"))), short(Median(faults[1])))
		p.Rows = append(p.Rows, inTime, Compare(verb+", CPU", "ms", "empty program", cpu[0], cpu[1], 0))
	}
}

// TestPrograms measures the programs as such: their files and their start.
func TestPrograms(t *testing.T) {
	p := report(t, "60-programs", "Programs", `Sizes of the files as they are shipped, allocations before main
(GODEBUG=inittrace=1), and the time until `+"`--version`"+` has been printed, beside Multus' programs.`)
	programs := []string{"ovn-multinet", "ovn-multinet-install", "ovn-multinetd", "ovn-multinet-controller", "kubectl-multinet"}
	peers := map[string]string{"ovn-multinet": "multus-shim", "ovn-multinetd": "multus-daemon", "ovn-multinet-install": "multus"}
	for _, name := range programs {
		path := ours(t, name)
		size := []float64{megabytes(t, path)}
		if other := peers[name]; other == "" {
			p.Rows = append(p.Rows, Number(name+", size", "MB", size, 0))
		} else {
			p.Rows = append(p.Rows, Compare(name+", size", "MB", other, size, []float64{megabytes(t, peer(other))}, 0))
		}
		p.Rows = append(p.Rows, Number(name+", allocations before main", "", []float64{allocationsBeforeMain(t, path)}, 0))
		var wall [2][]float64
		for range *turns {
			for i, program := range []string{path, peer("empty")} {
				cmd := exec.Command(program, "--version")
				wall[i] = append(wall[i], ms(stopwatch(func() { must(t, cmd.Run()) })))
			}
		}
		p.Rows = append(p.Rows, Compare(name+", start", "ms", "empty program", wall[0], wall[1], 0))
	}
}

func megabytes(t testing.TB, path string) float64 {
	return float64(get[os.FileInfo](t)(os.Stat(path)).Size()) / 1e6
}
