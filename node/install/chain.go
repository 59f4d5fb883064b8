package install

import (
	"encoding/json"
	"path/filepath"
)

// Chain is the primary network's conflist as the installer reads it.
type Chain struct {
	Files      []string // the configurations in the folder, in the order in which runtimes choose; also ours
	File       string   // the name of the primary network's file; "": there is none
	CNIVersion string
	Programs   []string // the plugins in the conflist, and the plugins that they run
}

// ReadChain reads the conflist that the installer would append our plugin to, and changes nothing. primary is as in
// Config. If there is no such conflist, the Chain still has Files.
func ReadChain(dir, primary string) (Chain, error) {
	var c Chain
	var err error
	if c.Files, err = configurations(dir); err != nil {
		return c, err
	}
	name, text, err := primaryFile(dir, primary)
	if err != nil {
		return c, err
	}
	l, err := parseList(text)
	if err != nil {
		return c, err
	}
	c.File, c.Programs = name, l.kinds()
	_ = json.Unmarshal(l.keys["cniVersion"], &c.CNIVersion)
	return c, nil
}

// ProgramPath returns the path of a plugin's program in the folder of plugins.
func ProgramPath(binDir, program string) string { return filepath.Join(binDir, filepath.Base(program)) }
