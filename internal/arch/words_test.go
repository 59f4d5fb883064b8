package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The last section of docs/glossary.md lists the words that we do not use. A rule says how to find a word that also
// has an ordinary use; the other words are forbidden wherever they stand, with or without an s.
var wordRules = map[string]struct {
	pattern     string // in lower case, with blanks between the words of an identifier
	identifiers bool   // only names that we declare; in prose the word is ordinary
	ordinary    string // is ignored
}{
	"element":  {ordinary: `network selection elements?|path elements?`},
	"want":     {pattern: `wants?`, identifiers: true},
	"part":     {pattern: `node'?s? parts?|parts? of (a|the|each) (layer3 )?network`},
	"share":    {pattern: `node'?s? shares?|shares? of (a|the|each) (layer3 )?network`},
	"block":    {pattern: `blocks|(a|the|its|one|node|each|'s|per) block`, ordinary: `blocks (until|pods|the|it|another)|cidr blocks`},
	"plug":     {pattern: `plug(s|ged|ging)?`},
	"unplug":   {pattern: `unplug(s|ged|ging)?`},
	"look":     {pattern: `looks?`, ordinary: `looks? (up|for|like|at|inside|complete)`},
	"round":    {pattern: `rounds?`, ordinary: `round trips?|rounds? (up|down)`},
	"sweep":    {pattern: `sweeps?|swept|sweeping`},
	"scrub":    {pattern: `scrub(s|bed|bing)?`},
	"left":     {identifiers: true, ordinary: `no address left`},
	"counts":   {pattern: `what counts|counts on`},
	"held":     {ordinary: `lock[^.;]* held|held lock`},
	"hands":    {pattern: `hands`, ordinary: `hands (on|over|it|them|the)`},
	"keys":     {pattern: `owns? the keys`},
	"drop":     {pattern: `drop(s|ped)?`, identifiers: true},
	"leave":    {pattern: `leaves?`, identifiers: true},
	"give up":  {pattern: `(give|gives|gave|giving) up`},
	"forget":   {identifiers: true, ordinary: `forget`}, // the operator's command
	"in force": {pattern: `in force`},
	"standing": {pattern: `standing`, identifiers: true},
	"behind":   {pattern: `behind`, identifiers: true, ordinary: `subnets? behind`},
	"take away": {
		pattern: `(take|takes|took|taking) (away|(it|them|these|those|all) away)`,
	},
}

var (
	italic    = regexp.MustCompile(`\*([^*]+)\*`)
	camelCase = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	codeSpan  = regexp.MustCompile("(?s)```.*?```|`[^`]*`")
)

type wordRule struct {
	word              string
	pattern, ordinary *regexp.Regexp
	identifiers       bool
}

// forbidden reads the glossary's last section.
func forbidden(t *testing.T) (all []wordRule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Words that we do not use")
	for _, words := range italic.FindAllStringSubmatch(section, -1) {
		for _, w := range strings.Split(words[1], ",") {
			w = strings.Join(strings.Fields(w), " ")
			r := wordRules[w]
			if r.pattern == "" {
				r.pattern = w + "s?"
			}
			rule := wordRule{word: w, pattern: regexp.MustCompile(`\b(` + r.pattern + `)\b`), identifiers: r.identifiers}
			if r.ordinary != "" {
				rule.ordinary = regexp.MustCompile(`\b(` + r.ordinary + `)\b`)
			}
			all = append(all, rule)
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d words are read from the glossary", len(all))
	}
	return all
}

// find returns the words of the rules in a text.
func find(rules []wordRule, text string, identifier bool) (words []string) {
	text = strings.ReplaceAll(text, "_", " ")
	text = strings.ToLower(strings.Join(strings.Fields(camelCase.ReplaceAllString(text, "$1 $2")), " "))
	for _, r := range rules {
		if r.identifiers && !identifier {
			continue
		}
		rest := text
		if r.ordinary != nil {
			rest = r.ordinary.ReplaceAllString(text, "")
		}
		if r.pattern.MatchString(rest) {
			words = append(words, r.word)
		}
	}
	return words
}

// declared lists the names that a file declares.
func (f *file) declared() (names []*ast.Ident) {
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok.String() == ":=" {
					names = append(names, id)
				}
			}
		}
		return true
	})
	return names
}

// TestWordsOfTheCode: names, comments, errors and logs of the product have no word that the glossary rules out.
func TestWordsOfTheCode(t *testing.T) {
	rules := forbidden(t)
	for _, p := range packages(t) {
		if !product(p.path) {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			report := func(what, text string, words []string) {
				for _, w := range words {
					t.Errorf("%s: %s %.90q has %q, see docs/glossary.md", f.path, what, text, w)
				}
			}
			report("file name", f.path, find(rules, filepath.Base(f.path), true))
			for _, id := range f.declared() {
				report("name", id.Name, find(rules, id.Name, true))
			}
			for _, group := range f.Comments {
				report("comment", group.Text(), find(rules, codeSpan.ReplaceAllString(group.Text(), ""), false))
			}
			for _, text := range f.strings() { // a text without a blank is a stored name, a flag or a key
				if strings.Contains(text, " ") || metricName.MatchString(text) {
					report("text", text, find(rules, text, false))
				}
			}
		}
	}
}

// product reports whether a package is linked into the programs that we ship, and written by hand.
func product(path string) bool {
	return !slices.ContainsFunc(append(testOnly, "ovndb/nb", "ovndb/vswitch", "internal/failpoint"),
		func(folder string) bool { return within(path, folder) })
}

// TestWordsOfTheDocs: the pages have none of these words outside of code.
func TestWordsOfTheDocs(t *testing.T) {
	rules := forbidden(t)
	for page, text := range pages(t) {
		if page == "docs/glossary.md" {
			continue
		}
		for paragraph := range strings.SplitSeq(codeSpan.ReplaceAllString(text, ""), "\n\n") {
			for _, w := range find(rules, paragraph, false) {
				t.Errorf("%s: %.90q has %q, see docs/glossary.md", page, paragraph, w)
			}
		}
	}
}

// TestGlossaryNamesCode: what the glossary names in code, such as `journal.Entry`, exists.
func TestGlossaryNamesCode(t *testing.T) {
	declared := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			for _, name := range f.declared() {
				declared[filepath.Base(p.path)+"."+name.Name] = true
			}
		}
	}
	glossary, err := os.ReadFile(filepath.Join(root, "docs", "glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z]+\\.[A-Z]\\w+)`").FindAllStringSubmatch(string(glossary), -1)
	for _, name := range names {
		if !declared[name[1]] {
			t.Errorf("docs/glossary.md names %s, which does not exist", name[1])
		}
	}
	if len(names) == 0 {
		t.Error("docs/glossary.md names no code")
	}
}

func TestFindWords(t *testing.T) {
	rules := forbidden(t)
	for text, want := range map[string]string{
		"unplugHostEnd": "unplug host end", "wants the port": "", "the plugin": "",
		"left by a killed call": "", "the lock is held": "", "the address is held": "held", "ovn_multinet_last_look_seconds": "look", "looks up the row": "", "it takes it away": "take away",
	} {
		var words []string
		for _, w := range find(rules, text, false) {
			words = append(words, strings.Fields(w)...)
		}
		slices.Sort(words)
		wanted := strings.Fields(want)
		slices.Sort(wanted)
		if !slices.Equal(words, wanted) {
			t.Errorf("%q: %v, want %v", text, words, wanted)
		}
	}
}
