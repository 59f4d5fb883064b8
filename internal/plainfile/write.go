package plainfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a whole file: it writes a temporary file in the same folder, syncs it, renames it and syncs the
// folder. After a power cut there is the old file or the new file, or no file if there was no old one. The temporary
// file has one name for each path, so only one writer may write a path at a time. The temporary file of a killed
// writer is overwritten.
func Write(path string, text []byte, mode os.FileMode) error {
	if err := replace(path, text, mode, (*os.File).Sync); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// WriteUnsynced is Write for a file that nobody needs after a power cut: the file may then be missing, or empty. Other
// processes see the old file or the new file, also if the writer is killed.
func WriteUnsynced(path string, text []byte, mode os.FileMode) error {
	return replace(path, text, mode, func(*os.File) error { return nil })
}

func replace(path string, text []byte, mode os.FileMode, sync func(*os.File) error) error {
	f, err := os.OpenFile(Temporary(path), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), sync(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Temporary is the name of the temporary file of Write.
func Temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

// SyncDir makes the disk write the names in a folder.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
