package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/images"
)

// file is a file of an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// setLine gives the line of a YAML key another value.
func (f *file) setLine(key, value string) error {
	lines := regexp.MustCompile(`(?m)^`+key+`: .*$`).FindAllString(string(f.content), -1)
	if len(lines) != 1 {
		return fmt.Errorf("%s has %d lines %s, not one", f.name, len(lines), key)
	}
	return f.replace("\n"+lines[0]+"\n", "\n"+key+": "+value+"\n")
}

// replace replaces a text that the file has once.
func (f *file) replace(old, with string) error {
	if n := bytes.Count(f.content, []byte(old)); n != 1 {
		return fmt.Errorf("%s has %q %d times, not once", f.name, old, n)
	}
	f.content = bytes.Replace(f.content, []byte(old), []byte(with), 1)
	return nil
}

// readFolder reads the files of a folder, which have another folder's name in the archive.
func readFolder(dir, name string) (all []file, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, p))
		all = append(all, file{path.Join(name, p), 0o644, content})
		return err
	})
	return all, err
}

// writeArchive writes a tar.gz. Its bytes depend only on the names and contents: no time and no owner gets into it.
func writeArchive(name string, files []file) error {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	t := tar.NewWriter(z)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return err
	}
	return os.WriteFile(name, buf.Bytes(), 0o644)
}

func writeImage(name string, platforms []images.Image) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(images.Write(f, platforms[0], platforms[1:]...), f.Close())
}

// sums is the file that lists the other files of a release, as sha256sum does.
const sums = "SHA256SUMS"

func (r *release) writeSums() error {
	entries, err := os.ReadDir(r.file(""))
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		f, err := os.Open(r.file(e.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", h.Sum(nil), e.Name())
	}
	return os.WriteFile(r.file(sums), []byte(text.String()), 0o644)
}

// publish moves the files to their place. An older release there is deleted.
func (r *release) publish() error {
	if err := replaceable(r.out); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.Rename(r.file(""), r.out)
}

// replaceable returns an error if a folder has other files than those of a release.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, sums))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || e.Name() != sums && !strings.Contains(string(text), "  "+e.Name()+"\n") {
			return fmt.Errorf("%s has %s, which is not of a release: choose an empty folder with OUT", dir, e.Name())
		}
	}
	return nil
}
