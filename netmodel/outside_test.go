package netmodel

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseOutside(t *testing.T) {
	const text = `[{"interface":"net1","floating":"192.0.2.17, 2001:db8::101"},{"interface":"net2","egress":"auto","pool":"public"}]`
	got, err := ParseOutside(text)
	if fmt.Sprint(got, err) != "[{net1 false [192.0.2.17 2001:db8::101] } {net2 true [] public}] <nil>" {
		t.Errorf("%v, %v", got, err)
	}
	for _, test := range []struct{ text, why string }{
		{`{}`, "it is no JSON list"},
		{``, "it is no JSON list"},
		{`null`, "it is no JSON list"},
		{`[null]`, "[0]: "},
		{`[{"interface":"net1","floatin":"auto"}]`, "floating"},
		{`[{"floating":"auto"}]`, `[0]: interface: "" is no name`},
		{`[{"interface":"net1"}]`, "either floating or egress"},
		{`[{"interface":"net1","floating":"auto","egress":"auto"}]`, "either floating or egress"},
		{`[{"interface":"net1","floating":"any"}]`, `floating: "any" is neither "auto" nor an address`},
		{`[{"interface":"net1","egress":"192.0.2.1,192.0.2.2"}]`, "egress: write one address of each family"},
		{`[{"interface":"net1","floating":"192.0.2.1","pool":"public"}]`, "pool: it is for"},
		{`[{"interface":"net1","floating":"auto"},{"interface":"net1","egress":"auto"}]`, "[1]: interface net1 is there twice"},
		{"[" + strings.TrimSuffix(strings.Repeat(`{"interface":"n","floating":"auto"},`, 65), ",") + "]", "65 interfaces, at most 64"},
	} {
		_, err := ParseOutside(test.text)
		if err == nil || !strings.Contains(err.Error(), test.why) || !strings.HasPrefix(err.Error(), "annotation ovn-multinet/outside-addresses: ") {
			t.Errorf("%s: %v, want %s", test.text, err, test.why)
		}
	}
}
