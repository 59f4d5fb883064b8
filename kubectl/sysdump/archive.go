package sysdump

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// archive is a file in the making. It has a hidden name in the same folder until it is whole.
type archive struct {
	name string // the last name
	root string // the folder in the archive
	when time.Time

	mu   sync.Mutex
	file *os.File // nil: published, or discarded
	gzip *gzip.Writer
	tar  *tar.Writer
	room int64 // bytes
	err  error // why nothing more can be written
}

var errRoom = errors.New("the archive has the largest size that an archive may have")

// exists is the error for a file that is already there.
func exists(name string) error {
	return fmt.Errorf("%s exists: delete it, or name another file with --output", name)
}

// create begins an archive. The file is for the user alone.
func create(name string, when time.Time, room int64) (*archive, error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, exists(name)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return nil, err
	}
	root := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), ".tgz"), ".tar.gz")
	a := &archive{name: name, root: cmp.Or(root, "sysdump"), when: when, file: file, room: room}
	a.gzip = gzip.NewWriter(file)
	a.tar = tar.NewWriter(a.gzip)
	return a, nil
}

// folder is where the archive is written: there is space for it there, or nowhere.
func (a *archive) folder() string { return filepath.Dir(a.name) }

// add adds a file. Errors of the disk are kept for publish.
func (a *archive) add(name string, size int64, from io.Reader) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if size > a.room {
		return errRoom
	}
	a.room -= size
	a.write(name, size, from)
	return nil
}

// addText adds a short file, also if the archive has no more room.
func (a *archive) addText(name, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.write(name, int64(len(text)), strings.NewReader(text))
}

func (a *archive) write(name string, size int64, from io.Reader) {
	if a.err != nil {
		return
	}
	header := &tar.Header{Name: path.Join(a.root, name), Size: size, Mode: 0o600, ModTime: a.when, Typeflag: tar.TypeReg}
	if a.err = a.tar.WriteHeader(header); a.err == nil {
		_, a.err = io.CopyN(a.tar, from, size)
	}
}

// publish ends the archive and gives it its name, unless another file has got that name meanwhile. It returns the size.
func (a *archive) publish() (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := errors.Join(a.err, a.tar.Close(), a.gzip.Close(), a.file.Sync()); err != nil {
		return 0, err
	}
	info, err := a.file.Stat()
	if err != nil {
		return 0, err
	}
	// A rename would replace a file that came meanwhile, a link does not. Some filesystems have no links.
	err = os.Link(a.file.Name(), a.name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return 0, exists(a.name)
	case err != nil:
		if _, there := os.Lstat(a.name); there == nil {
			return 0, exists(a.name)
		}
		if err := os.Rename(a.file.Name(), a.name); err != nil {
			return 0, err
		}
	default:
		if err := os.Remove(a.file.Name()); err != nil {
			return 0, err
		}
	}
	err = a.file.Close()
	a.file = nil
	return info.Size(), err
}

// discard deletes the hidden file of an archive that is not published.
func (a *archive) discard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file != nil {
		_ = a.file.Close()
		_ = os.Remove(a.file.Name())
		a.file = nil
	}
}

// spool has the content of a file of the archive until its size is known: tar needs the size first. It is on the disk
// and not in memory, and it has no name, so that nothing of it stays when the program is killed.
type spool struct {
	file *os.File
	size int64
	most int64
}

func newSpool(folder string, most int64) (*spool, error) {
	file, err := os.CreateTemp(folder, ".ovn-multinet-sysdump-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &spool{file: file, most: most}, nil
}

// Write refuses what is beyond the size of a file.
func (s *spool) Write(text []byte) (int, error) {
	room := max(0, s.most-s.size)
	n, err := s.file.WriteAt(text[:min(int64(len(text)), room)], s.size)
	s.size += int64(n)
	if err == nil && n < len(text) {
		err = errFile
	}
	return n, err
}

func (s *spool) close() { _ = s.file.Close() }
