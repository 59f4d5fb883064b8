package ovnrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Backup writes the database as text, as ovsdb-client(1) does. Any member of the raft can do it.
func (d *Database) Backup(ctx context.Context, to io.Writer) error {
	return d.client(ctx, nil, to, "backup")
}

// Restore replaces all rows of the database by those of a backup, in one transaction. Any member of the raft can do it.
func (d *Database) Restore(ctx context.Context, from io.Reader) (err error) {
	file, err := os.CreateTemp("", "backup") // ovsdb-client reads a backup only from a file
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	if _, err = io.Copy(file, from); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return d.client(ctx, file, io.Discard, "restore")
}

func (d *Database) client(ctx context.Context, in *os.File, out io.Writer, command string) error {
	err := filter(ctx, in, out, "ovsdb-client", "--no-leader-only", command, "unix:"+d.Socket(), d.Kind.Database)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", command, d.Kind.Database, err)
	}
	return nil
}
