package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Page is the text of docs/performance.md.
func Page(parts []*Part) string {
	var b strings.Builder
	b.WriteString(`# How fast it is

` + "`make bench`" + ` writes this page. All comparisons are measured in turns (ours, peer, ours, peer …) on one
machine. "Ours : peer" is the ratio of the medians, and the interval holds it with 95 % (bootstrap over
turns): a ratio below 1 says that ovn-multinet takes less. Counts, which no load changes, are in
[counts](#counts): CI fails if one of them gets worse.

`)
	for _, p := range parts {
		p.section(&b)
	}
	return b.String()
}

func (p *Part) section(b *strings.Builder) {
	fmt.Fprintf(b, "## %s\n\n%s\n\n", p.Title, strings.TrimSpace(p.Text))
	if p.Where.Busy() {
		b.WriteString("**Other programs used the machine during these measurements. " +
			"Do not read the times; ratios are less precise than on an idle machine.**\n\n")
	}
	if compared(p.Rows) {
		b.WriteString("| | ours | peer | ours : peer | n | goal | |\n|---|---|---|---|---|---|---|\n")
	} else {
		b.WriteString("| | ours | n | goal | |\n|---|---|---|---|---|\n")
	}
	for _, r := range p.Rows {
		b.WriteString(r.line(compared(p.Rows)))
	}
	b.WriteString("\n")
	p.bounds(b)
	for _, plot := range p.Plots {
		fmt.Fprintf(b, "![%s](performance/%s.svg)\n\n", plot.Title, plot.Name)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(b, "%s\n\n", note)
	}
	fmt.Fprintf(b, "Measured on: %s.\n\n", p.Where)
}

// bounds says of each row that misses its goal what the bound is. Rows with one bound share a sentence.
func (p *Part) bounds(b *strings.Builder) {
	var texts []string
	rows := map[string][]string{}
	for _, r := range p.Rows {
		if !r.Missed() {
			continue
		}
		text := cmp.Or(r.Bound, "The bound is not known.")
		if rows[text] == nil {
			texts = append(texts, text)
		}
		name := r.What
		if r.Peer != "" {
			name += " (" + r.Peer + ")"
		}
		rows[text] = append(rows[text], name)
	}
	for _, text := range texts {
		fmt.Fprintf(b, "Not reached: %s. %s\n\n", strings.Join(rows[text], "; "), text)
	}
}

func compared(rows []Row) bool {
	for _, r := range rows {
		if r.Peer != "" {
			return true
		}
	}
	return false
}

func (r Row) line(compared bool) string {
	goal := ""
	if r.Goal != nil {
		goal = "≤ " + short(*r.Goal)
	}
	cells := []string{r.What, withUnit(r.Ours, r.Unit)}
	if compared {
		peer, ratio := "", ""
		if r.Peer != "" {
			peer, ratio = r.Peer+": "+withUnit(r.Peers, r.Unit), interval(r.Ratio)
		}
		cells = append(cells, peer, ratio)
	}
	cells = append(cells, fmt.Sprint(r.N), goal, r.Verdict())
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func withUnit(e Estimate, unit string) string { return strings.TrimSpace(short(e.Median) + " " + unit) }

func interval(e Estimate) string {
	return fmt.Sprintf("**%s** (%s … %s)", short(e.Median), short(e.Low), short(e.High))
}

// WritePage writes the page and its plots into the folder docs.
func WritePage(docs string, parts []*Part) error {
	folder := filepath.Join(docs, "performance")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, p := range parts {
		for _, plot := range p.Plots {
			if err := os.WriteFile(filepath.Join(folder, plot.Name+".svg"), []byte(plot.SVG()), 0o644); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(docs, "performance.md"), []byte(Page(parts)), 0o644)
}
