//go:build sriov

package scenarios

import (
	"flag"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func TestMain(m *testing.M) { lab.Main(scenarios{m}, lab.WithMachineNetwork()) }

// scenarios leaves out those that need a plugin that is not there, so that they are not counted as passed.
type scenarios struct{ m *testing.M }

// Run runs them, and returns the program's code.
func (s scenarios) Run() int {
	if !haveSRIOV() {
		notRun("TestCard/" + reach)
		for _, c := range cardSettings {
			notRun("TestCard/" + c.name)
		}
		if err := flag.Set("test.skip", "^TestCard$"); err != nil {
			panic(err)
		}
	}
	return s.m.Run()
}
