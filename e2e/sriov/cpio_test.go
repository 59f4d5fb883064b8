package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dsnet/try"
)

// entries reads an archive back by the format's description.
func entries(t *testing.T, b []byte) (out []string) {
	defer try.F(t.Fatal)
	t.Helper()
	for len(b) > 0 {
		if !bytes.HasPrefix(b, []byte("070701")) {
			t.Fatalf("no header at %d from the end: %q", len(b), b[:min(len(b), 6)])
		}
		var field [13]int
		for i := range field {
			n := try.E1(strconv.ParseUint(string(b[6+8*i:14+8*i]), 16, 32))
			field[i] = int(n)
		}
		align := func(n int) int { return (n + 3) &^ 3 }
		const header = 110
		content := align(header + field[11])
		name := strings.TrimSuffix(string(b[header:header+field[11]]), "\x00")
		if name == "TRAILER!!!" {
			rest := bytes.TrimLeft(b[content:], "\x00")
			if len(rest) > 0 {
				return append(out, entries(t, rest)...)
			}
			return out
		}
		out = append(out, fmt.Sprintf("%s %o %q", name, field[1], b[content:content+field[6]]))
		b = b[align(content+field[6]):]
	}
	t.Fatal("no trailer")
	return nil
}

// TestArchive writes two archives into one file, as the guest's kernel reads them: folders come before what is in them, each
// once in an archive, and every size of content is padded.
func TestArchive(t *testing.T) {
	defer try.F(t.Fatal)
	var b bytes.Buffer
	a := newArchive(&b)
	a.file("usr/bin/a", 0o755, []byte("x"))
	a.file("usr/bin/bc", 0o644, []byte("wxyz"))
	a.file("usr/bin/a", 0o600, []byte("a second one of the name"))
	a.link("usr/bin/l", "a")
	try.E(a.close())
	if b.Len()%512 != 0 {
		t.Errorf("the first archive has %d bytes", b.Len())
	}
	second := newArchive(&b)
	second.file("init", 0o755, nil)
	try.E(second.close())
	want := []string{`usr 40755 ""`, `usr/bin 40755 ""`, `usr/bin/a 100755 "x"`, `usr/bin/bc 100644 "wxyz"`, `usr/bin/l 120777 "a"`, `init 100755 ""`}
	if got := entries(t, b.Bytes()); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
