package lint

import (
	"fmt"
	"io"
)

// Write writes the findings for people, and a summary.
func (r *Report) Write(w io.Writer) error {
	for i := range r.Findings {
		f := &r.Findings[i]
		object, code := f.Object, ""
		if object == "" {
			object = "a document that cannot be read"
		}
		if f.Code != 0 {
			code = fmt.Sprintf(" [%d]", f.Code)
		}
		_, err := fmt.Fprintf(w, "%s, document %d: %s\n  %s: %s%s\n", f.File, f.Document, object, f.Level, f.Message, code)
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d objects checked, %d others: %d errors, %d warnings, %d notes\n",
		r.Checked, r.Others, r.Count(Error), r.Count(Warning), r.Count(Note))
	return err
}
