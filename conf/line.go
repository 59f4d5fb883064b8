package conf

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on texts that tenants may influence, in bytes.
const (
	MaxMessage = 2 << 10 // an error's message, and its details
	MaxReason  = 1 << 10 // the reason in a network's state, and the message of an Event: the API's limit
	MaxName    = 40      // a name or value that an error quotes
)

// OneLine makes a text that a tenant may have written fit for a log, an error or an Event: one line of printable
// characters and at most limit bytes. A longer text ends in "…". What OneLine returns it returns unchanged.
func OneLine(text string, limit int) string {
	const ellipsis = "…"
	var out strings.Builder
	space, cut := false, 0
	for _, r := range text {
		if unicode.IsSpace(r) {
			space = out.Len() > 0
			continue
		}
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			r = '?'
		}
		if space {
			out.WriteByte(' ')
			space = false
		}
		out.WriteRune(r)
		if out.Len() <= limit-len(ellipsis) {
			cut = out.Len()
		}
		if out.Len() > limit {
			return strings.TrimRight(out.String()[:cut], " ") + ellipsis
		}
	}
	return out.String()
}

// Brief returns an error's text for a log.
func Brief(err error) string { return OneLine(err.Error(), MaxMessage) }
