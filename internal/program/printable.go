package program

import (
	"io"
	"unicode"
	"unicode/utf8"
)

// printable writes what a terminal may get: printable characters, spaces, tabs and ends of lines. Nodes and tenants
// write much of what a command shows, and a terminal obeys control characters (ECMA-48).
type printable struct {
	to   io.Writer
	half []byte // the beginning of a character whose end is not written yet
}

// Write replaces each other character by "?".
func (p *printable) Write(text []byte) (int, error) {
	rest := append(p.half, text...)
	var out []byte
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError, r != '\n' && r != '\t' && !unicode.IsPrint(r):
			out = append(out, '?')
		default:
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	p.half = rest
	if _, err := p.to.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}
