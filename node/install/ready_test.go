package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node is ready from the first conflist of ours on, and not while anything that a pod's networks need is missing.
func TestReady(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, c *Config)
		want   string // "": ready
	}{
		{"installed", func(*testing.T, *Config) {}, ""},
		{"no plugin", func(t *testing.T, c *Config) { must(t, os.Remove(c.binary())) }, "no such file or directory"},
		{"another plugin", func(t *testing.T, c *Config) { write(t, c.binary(), "an older plugin") }, "is another program than"},
		{"no conflist", func(t *testing.T, c *Config) { must(t, os.Remove(c.conflist())) }, "no such file or directory"},
		{"the primary network alone", func(t *testing.T, c *Config) { write(t, c.conflist(), flannel) }, "does not end with ovn-multinet"},
		{"no plugins", func(t *testing.T, c *Config) { write(t, c.conflist(), `{"plugins": []}`) }, "does not end with ovn-multinet"},
		{"half a conflist", func(t *testing.T, c *Config) { write(t, c.conflist(), `{"plugins": [`) }, "unexpected end of JSON input"},
		{"another first", func(t *testing.T, c *Config) {
			write(t, filepath.Join(c.NetDir, "00-other.conflist"), flannel)
		}, "runtimes use 00-other.conflist"},
		{"of an uninstall", func(t *testing.T, c *Config) {
			i := working(t, *c)
			entry := c.Entry
			entry.Draining = true
			_, err := i.chain(entry)
			must(t, err)
		}, "being uninstalled"},
		{"no primary network any more", func(t *testing.T, c *Config) { must(t, os.Remove(c.primary())) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := node(t)
			write(t, c.primary(), flannel)
			if c.Ready() == nil {
				t.Error("ready before the installation")
			}
			i := working(t, c)
			must(t, i.place())
			_, err := i.chain(c.Entry)
			must(t, err)
			tt.change(t, &c)
			err = c.Ready()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
