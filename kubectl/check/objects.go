package check

import (
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// CheckObjects judges the operator's objects. err says why they could not be read.
func CheckObjects(objects []*entry.Object, err error) (all []Finding) {
	const what = "operator-objects"
	if err != nil {
		return []Finding{unread(what, "run this command with the right to list them", err)}
	}
	accepted := 0
	for _, o := range objects {
		describe := "kubectl describe " + o.Kind.Plural + "." + entry.Group + " " + o.Name
		switch s := &o.Status; {
		case s.Observed != o.Generation:
			all = append(all, warning(what, "wait a moment; if it stays, see the check controllers",
				"%s: no controller has read its present spec", o.ID()))
		case !s.Counts() && s.Accepted != nil:
			all = append(all, fault(what, describe, "%s is refused, and its former spec is used: %s", o.ID(), s.Reason))
		case !s.Counts():
			all = append(all, fault(what, describe, "%s is refused: %s", o.ID(), s.Reason))
		case s.Problem != "":
			all = append(all, warning(what, describe, "%s: %s", o.ID(), s.Problem))
		default:
			accepted++
		}
	}
	if accepted > 0 {
		all = append(all, ok(what, "%d of %d are accepted, and nothing is missing", accepted, len(objects)))
	}
	return all
}
