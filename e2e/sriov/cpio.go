package main

import (
	"fmt"
	"io"
	"io/fs"
	"path"
)

// archive writes a cpio archive in the format that Linux unpacks at its start: its Documentation, early-userspace/
// buffer-format.rst. All files are root's. Folders are made as they are needed.
type archive struct {
	to     io.Writer
	offset int64
	number int
	have   map[string]bool
	err    error
}

func newArchive(to io.Writer) *archive { return &archive{to: to, have: map[string]bool{".": true}} }

const (
	modeFolder = 0o040000
	modeFile   = 0o100000
	modeLink   = 0o120000
)

// folder adds a folder and those above it.
func (a *archive) folder(name string) { a.entry(name, modeFolder|0o755, nil) }

// link adds a symbolic link.
func (a *archive) link(name, target string) { a.entry(name, modeLink|0o777, []byte(target)) }

// file adds a file.
func (a *archive) file(name string, mode fs.FileMode, content []byte) {
	a.entry(name, modeFile|uint32(mode.Perm()), content)
}

// entry adds what is not there yet.
func (a *archive) entry(name string, mode uint32, content []byte) {
	name = path.Clean(name)
	if a.have[name] {
		return
	}
	if dir := path.Dir(name); !a.have[dir] {
		a.folder(dir)
	}
	a.have[name] = true
	a.record(name, mode, content)
}

func (a *archive) record(name string, mode uint32, content []byte) {
	a.number++
	const uid, gid, links, mtime, devices, check = 0, 0, 1, 0, 0, 0
	a.write([]byte(fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.number, mode, uid, gid, links, mtime,
		len(content), devices, devices, devices, devices, len(name)+1, check)))
	a.write([]byte(name + "\x00"))
	a.pad(4)
	a.write(content)
	a.pad(4)
}

// close ends the archive, so that another may follow in the same file.
func (a *archive) close() error {
	a.record("TRAILER!!!", 0, nil)
	a.pad(512)
	return a.err
}

func (a *archive) pad(to int64) {
	if rest := a.offset % to; rest != 0 {
		a.write(make([]byte, to-rest))
	}
}

func (a *archive) write(b []byte) {
	if a.err != nil {
		return
	}
	n, err := a.to.Write(b)
	a.offset += int64(n)
	a.err = err
}
