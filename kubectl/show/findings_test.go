package show

import (
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
)

func TestFindings(t *testing.T) {
	var out strings.Builder
	err := Findings(&out, []check.Finding{
		{Level: check.OK, What: "nad-crd", Cause: "served"},
		{Level: check.Warning, What: "inotify", Cause: "low", Fix: "raise it", Nodes: []string{"a", "b", "c"}},
		{Level: check.Error, What: "conflist", Cause: "none\nyet", Fix: "install it", Nodes: []string{"a", "b", "c", "d"}},
	})
	const want = `ok       nad-crd: served
warning  inotify: a, b, c: low: raise it
error    conflist: 4 nodes (a, b, c, …): none yet: install it
`
	if err != nil || out.String() != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, out.String(), want)
	}
}
