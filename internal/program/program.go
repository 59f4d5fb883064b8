package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// envPrefix is the prefix of the environment variable of every flag: --nb-endpoints is OVN_MULTINET_NB_ENDPOINTS.
const envPrefix = "OVN_MULTINET_"

// Main runs a command until the command ends or the process receives SIGINT or SIGTERM. It returns the exit code.
func Main(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd.SilenceUsage, cmd.SilenceErrors, cmd.Version = true, true, version.String()
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	complaints := &printable{to: os.Stderr}
	cmd.SetOut(&printable{to: os.Stdout})
	cmd.SetErr(complaints)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd.Flags()) }
	if err := cmd.ExecuteContext(ctx); err != nil {
		var exit *Exit
		if !errors.As(err, &exit) {
			exit = &Exit{Code: 1, Err: err}
		}
		if exit.Err != nil {
			fmt.Fprintf(complaints, "%s: %v\n", cmd.Name(), exit.Err)
		}
		return exit.Code
	}
	return 0
}

// Exit is the error of a command that ends with an exit code of its own. Without Err, Main prints nothing.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string { return fmt.Sprintf("exit code %d: %v", e.Code, e.Err) }

func (e *Exit) Unwrap() error { return e.Err }

// UserAgent returns the name and version of this program, as servers log them.
func UserAgent() string { return filepath.Base(os.Args[0]) + "/" + version.Number }

// fromEnvironment sets each flag that is not on the command line from its environment variable.
func fromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, given := os.LookupEnv(name)
		if !given || f.Changed || f.Name == "help" || f.Name == "version" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}
