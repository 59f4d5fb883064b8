package conf

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestBoundaryOneLine(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"a short text", "network shop/blue: unknown key", "network shop/blue: unknown key"},
		{"line ends and tabs", "\n a\r\n\tb\u2028c \n", "a b c"},
		{"escape sequences of a terminal", "a\x1b[31mb\x00c\x7f", "a?[31mb?c?"},
		{"text that is shown in another direction", "a\u202eb\u200b", "a?b?"},
		{"invalid UTF-8", "a\xff\xfeb", "a??b"},
		{"other scripts", "네트워크 é…", "네트워크 é…"},
		{"as long as may be", strings.Repeat("x", 40), strings.Repeat("x", 40)},
		{"longer", strings.Repeat("x", 41), strings.Repeat("x", 37) + "…"},
		{"longer, with a letter of three bytes at the end", strings.Repeat("x", 36) + "네네", strings.Repeat("x", 36) + "…"},
		{"longer, with a space at the end", strings.Repeat("x", 36) + " yyyyyy", strings.Repeat("x", 36) + "…"},
		{"much longer", strings.Repeat("x\n", 1<<20), strings.Repeat("x ", 18) + "x…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := OneLine(tt.text, 40); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// Whatever a tenant writes: a text is one line, of characters that a terminal shows, has a bound, and does not change again.
func FuzzOneLine(f *testing.F) {
	f.Add("a\nb")
	f.Add(strings.Repeat("é ", 100))
	f.Add("\xff\x1b\u2028…")
	f.Fuzz(func(t *testing.T, text string) {
		const limit = 64
		got := OneLine(text, limit)
		hidden := strings.IndexFunc(got, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) })
		if len(got) > limit || hidden >= 0 || OneLine(got, limit) != got || !utf8.ValidString(got) {
			t.Errorf("%q of %q, then %q", got, text, OneLine(got, limit))
		}
		if short := strings.Join(strings.Fields(text), " "); len(short) <= limit && !strings.ContainsFunc(short, func(r rune) bool { return !unicode.IsPrint(r) }) && got != short {
			if !strings.ContainsRune(short, utf8.RuneError) {
				t.Errorf("%q became %q", short, got)
			}
		}
	})
}

// An error's message goes into a CNI result, an Event, a network's state and logs.
func TestBoundaryErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x\n", 1<<20)
	for name, err := range map[string]error{
		"with a code":    fmt.Errorf("interface net1: %w", Errorf(CodeInvalidConfig, long, "%s", long)),
		"without a code": errors.New(long),
		"many together":  errors.Join(Errorf(CodeInUse, long, "%s", long), errors.New(long)),
	} {
		_, msg, details := Describe(err)
		if len(msg) > MaxMessage || len(details) > MaxMessage || strings.ContainsAny(msg+details, "\n\r") || len(Brief(err)) > MaxMessage {
			t.Errorf("%s: %d bytes, details %d bytes", name, len(msg), len(details))
		}
		if !strings.HasSuffix(msg, "…") {
			t.Errorf("%s: a text that is cut does not say so: …%q", name, msg[len(msg)-10:])
		}
	}
}
