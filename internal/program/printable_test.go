package program

import (
	"bytes"
	"testing"
)

// TestPrintable: a terminal gets no control character, in whatever pieces a text is written, and all else as it is.
func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"plain", "POD\tNODE\n\nshop/web  서울 São ✓\n", "POD\tNODE\n\nshop/web  서울 São ✓\n"},
		{"a color (CSI)", "\x1b[31mred\x1b[0m", "?[31mred?[0m"},
		{"a title (OSC)", "\x1b]0;owned\x07", "?]0;owned?"},
		{"one byte and two of C1", "\x9b31m\u009b31m", "?31m?31m"},
		{"the line again", "good\rbad\b\x00\x7f\v\f", "good?bad?????"},
		{"other directions", "a\u202eb\u2066c\ufeffd\u2028e", "a?b?c?d?e"},
		{"no UTF-8", "\xff\xc3(", "??("},
	} {
		for _, size := range []int{1, 2, 3, len(tt.text)} {
			var got bytes.Buffer
			w := &printable{to: &got}
			for text := []byte(tt.text); len(text) > 0; {
				n, err := w.Write(text[:min(size, len(text))])
				if err != nil || n == 0 {
					t.Fatal(n, err)
				}
				text = text[n:]
			}
			if got.String() != tt.want {
				t.Errorf("%s, in pieces of %d: %q, want %q", tt.name, size, got.String(), tt.want)
			}
		}
	}
}
