package show

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/docs"
)

// codeRow is a row of the table of error codes: code, meaning, what to do.
var codeRow = regexp.MustCompile(`(?m)^\| (\d+) \| (.*?) \| (.*?) \|$`)

// link is a link of Markdown.
var link = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)

// Explain writes what an error code means and what to do; without a code, the list of all codes.
func Explain(w io.Writer, code string) error {
	rows := codeRow.FindAllStringSubmatch(docs.Errors, -1)
	if code == "" {
		t := table(w)
		fmt.Fprintln(t, "CODE\tMEANING")
		for _, row := range rows {
			printf(t, "%s\t%s\n", row[1], row[2])
		}
		return t.Flush()
	}
	for _, row := range rows {
		if row[1] != code {
			continue
		}
		next := link.ReplaceAllStringFunc(row[3], func(text string) string {
			parts := link.FindStringSubmatch(text)
			if strings.HasPrefix(parts[2], "http") {
				return parts[1] + " (" + parts[2] + ")"
			}
			return parts[1] + " (docs/" + parts[2] + ")"
		})
		_, err := fmt.Fprintf(w, "%s: %s\n\n%s\n", code, row[2], strings.ReplaceAll(next, "`", ""))
		return err
	}
	const unknown = "no code %q: kubectl multinet explain lists the codes; other CNI plugins have codes of their own"
	return fmt.Errorf(unknown, code)
}
