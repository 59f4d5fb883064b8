package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

// backups runs in the pod of OVN's databases.
var backups = tool{program: "/ovn-multinet-ovn", label: centralLabel, container: "nb"}

const ofBackups = `The pod of a member of OVN's databases does the work, so you need the right to create pods/exec in
the namespace ovn-multinet. It is for the OVN that the chart runs.`

func backupCommand() *cobra.Command {
	return copyCommand("backup FILE", "Write a backup of OVN's Northbound database into a file", ofBackups,
		func(run copying, file string) error {
			return writeWhole(file, func(out io.Writer) error { return run("backup", nil, out) })
		})
}

func restoreCommand() *cobra.Command {
	return copyCommand("restore FILE", "Replace all rows of OVN's Northbound database by those of a backup",
		`The rows are replaced in one transaction; a file that is no backup changes nothing. Pods that run keep their
networks: their nodes write the ports again.

`+ofBackups, func(run copying, file string) error {
			in, err := os.Open(file)
			if err != nil {
				return err
			}
			defer in.Close()
			return run("restore", in, io.Discard)
		})
}

// copying runs a command of the program in the pod.
type copying func(command string, in io.Reader, out io.Writer) error

func copyCommand(use, short, long string, work func(run copying, file string) error) *cobra.Command {
	var clients clientOptions
	timeout := time.Duration(0)
	cmd := &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + long, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			k, _, err := clients.connect()
			if err != nil {
				return err
			}
			if _, err := k.ofOwnOVN(ctx, "see docs/operations.md for an OVN of your own"); err != nil {
				return err
			}
			in, err := k.podOfTool(ctx, backups, "")
			if err != nil {
				return err
			}
			return work(func(command string, from io.Reader, out io.Writer) error {
				return execIn(ctx, k.config, k.core, in, []string{backups.program, command}, from, out)
			}, args[0])
		},
	}
	clients.clusterFlags(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long the command may take")
	return cmd
}

// writeWhole writes a file that is there only if everything was written. It is for the user alone.
func writeWhole(file string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err = errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
