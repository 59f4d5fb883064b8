package show

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestExplain: each code is listed, and its text is for a terminal.
func TestExplain(t *testing.T) {
	var list strings.Builder
	if err := Explain(&list, ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range conf.Codes {
		var page strings.Builder
		if err := Explain(&page, fmt.Sprint(c.Code)); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(page.String(), fmt.Sprintf("%d: %s\n\n", c.Code, c.Meaning)) || strings.ContainsAny(page.String(), "`|") ||
			strings.Contains(page.String(), "](") {
			t.Errorf("code %d: %s", c.Code, page.String())
		}
		if !strings.Contains(list.String(), fmt.Sprintf("%-4d  %s\n", c.Code, c.Meaning)) {
			t.Errorf("the list does not have %d:\n%s", c.Code, list.String())
		}
	}
	if !strings.Contains(list.String(), "CODE") {
		t.Errorf("the list is\n%s", list.String())
	}
	if err := Explain(&list, "1"); err == nil || !strings.HasPrefix(err.Error(), `no code "1": kubectl multinet explain lists the codes`) {
		t.Errorf("an unknown code: %v", err)
	}
}
