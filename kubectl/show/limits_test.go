package show

import (
	"bytes"
	"strings"
	"testing"
)

// TestLimits: the account of the leader becomes a table; another controller has none.
func TestLimits(t *testing.T) {
	const text = `# TYPE ovn_multinet_controller_leader gauge
ovn_multinet_controller_leader 1
# TYPE ovn_multinet_controller_cost gauge
ovn_multinet_controller_cost{namespace="web",resource="bytes"} 10
ovn_multinet_controller_cost{namespace="shop",resource="flows"} 15000
ovn_multinet_controller_cost{namespace="shop",resource="bytes"} 1.048576e+06
# TYPE ovn_multinet_controller_cost_limit gauge
ovn_multinet_controller_cost_limit{namespace="web",resource="bytes"} 0
ovn_multinet_controller_cost_limit{namespace="shop",resource="flows"} 30000
ovn_multinet_controller_cost_limit{namespace="shop",resource="bytes"} 4.194304e+06
`
	list, leads, err := ParseLimits(strings.NewReader(text))
	if err != nil || !leads {
		t.Fatal(leads, err)
	}
	var lines bytes.Buffer
	if err := LimitTable(&lines, list); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(lines.String()), " "), "NAMESPACE RESOURCE USED LIMIT PERCENT "+
		"shop bytes 1048576 4194304 25 shop flows 15000 30000 50 web bytes 10 0 -"; got != want {
		t.Errorf("table %q, want %q", got, want)
	}
	if of := LimitsOf(list, "web"); len(of) != 1 || of[0].Used != 10 {
		t.Errorf("of web: %v", of)
	}
	if list, leads, err := ParseLimits(strings.NewReader("ovn_multinet_controller_leader 0\n")); err != nil || leads || len(list) > 0 {
		t.Errorf("of another controller: %v, %t, %v", list, leads, err)
	}
	if _, _, err := ParseLimits(strings.NewReader("{")); err == nil {
		t.Error("a text that is no metrics has no error")
	}
}
