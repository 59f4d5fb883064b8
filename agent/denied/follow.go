package denied

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

const (
	// maxRead is how many bytes of the file one pass reads. What comes after that is skipped, so that a flood of lines,
	// ours or others', costs the agent no more than this.
	maxRead = 512 << 10
	// maxLine is longer than any line that is ours, in bytes.
	maxLine = 2 << 10
)

// follower reads the lines that are appended to a file, also when the file is replaced or truncated.
type follower struct {
	path   string
	file   *os.File
	offset int64
	begun  bool   // the file that was there at the start is known: older lines are not read
	rest   []byte // the begin of a line whose end is not written yet
	long   bool   // this line is too long: its end is skipped too
	buffer []byte
}

// read calls each for the new lines, and returns how many bytes it has skipped.
func (f *follower) read(each func(line string)) (skipped int64, err error) {
	if f.file == nil {
		if err := f.open(); err != nil || f.file == nil {
			return 0, err
		}
	}
	here, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() < f.offset { // truncated
		f.begin(0)
	}
	if unread := info.Size() - f.offset; unread > maxRead {
		skipped = unread - maxRead
		f.begin(f.offset + skipped)
		f.long = true // this place is in the middle of a line
	}
	if f.buffer == nil {
		f.buffer = make([]byte, 16<<10)
	}
	for f.offset < info.Size() {
		n, err := f.file.ReadAt(f.buffer[:min(int64(len(f.buffer)), info.Size()-f.offset)], f.offset)
		f.offset += int64(n)
		f.lines(f.buffer[:n], each)
		if err != nil && !errors.Is(err, io.EOF) {
			return skipped, err
		}
		if n == 0 {
			break // truncated meanwhile
		}
	}
	if here == nil || !os.SameFile(here, info) { // replaced: the next pass reads the new file from its begin
		f.close()
	}
	return skipped, nil
}

// open opens the file. A file that is not there is not an error: ovn-controller creates it.
func (f *follower) open() error {
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if errors.Is(err, fs.ErrNotExist) {
		f.begun = true
		return nil
	}
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", f.path)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file = file
	if f.begin(0); !f.begun {
		f.begin(info.Size())
		f.begun = true
	}
	return nil
}

func (f *follower) begin(offset int64) { f.offset, f.rest, f.long = offset, nil, false }

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close() // it was only read
		f.file = nil
	}
}

// lines finds the lines in what was read.
func (f *follower) lines(text []byte, each func(line string)) {
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			if f.long = f.long || len(f.rest)+len(text) > maxLine; !f.long {
				f.rest = append(f.rest, text...)
			}
			return
		}
		if !f.long && len(f.rest)+end <= maxLine {
			each(string(f.rest) + string(text[:end]))
		}
		f.rest, f.long, text = f.rest[:0], false, text[end+1:]
	}
}
