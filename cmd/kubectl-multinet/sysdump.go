package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
	"github.com/ovn-multinet/ovn-multinet/kubectl/show"
	"github.com/ovn-multinet/ovn-multinet/kubectl/sysdump"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// sysdumpOptions are the options of the command sysdump.
type sysdumpOptions struct {
	clients clientOptions
	file    string
	timeout time.Duration
}

func sysdumpCommand() *cobra.Command {
	var o sysdumpOptions
	cmd := &cobra.Command{
		Use: "sysdump", Args: cobra.NoArgs,
		Short: "Write an archive with what a developer needs to understand a broken installation",
		Long: `Write an archive with what a developer needs to understand a broken installation: objects, Events, logs of
ovn-multinet's own pods, and what other commands print. The command reads by the API server alone and by your rights,
and changes nothing. The archive has no value of a Secret, no environment and no configuration of other plugins; the
file omitted.txt in it lists what is left out, and docs/operations.md explains what is in it. Read the archive before
you give it to others: it has names, labels and addresses of your cluster.

After the timeout the archive is there with what could be collected until then. The file missing.txt in it lists the
rest.

The exit code is 0 if nothing is missing, 2 if something is missing, and 1 if there is no archive.`,
		Example: "  kubectl multinet sysdump\n  kubectl multinet sysdump -o broken.tar.gz --timeout 2m\n" +
			"  kubectl multinet sysdump -n shop",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.clients.flags(cmd.Flags())
	cmd.Flags().Lookup("namespace").Usage = "only networks, policies, IPAMClaims, pods and events of this namespace; " +
		"empty: of all"
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "file to write; empty: ovn-multinet-sysdump-<UTC time>.tar.gz")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 60*time.Second, "the time until the archive is there")
	return cmd
}

func (o *sysdumpOptions) run(ctx context.Context, out io.Writer) error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: %s is no time to collect in", o.timeout)
	}
	if o.file == "" {
		o.file = "ovn-multinet-sysdump-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	config, _, err := o.clients.load()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100 // there are several logs of each node
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	result, err := sysdump.Write(ctx, sysdump.Config{
		Client: core.CoreV1().RESTClient(), Namespace: o.clients.namespace, File: o.file, Timeout: o.timeout,
		Outputs: o.outputs(&cluster{config, core}),
	})
	if err != nil {
		return err
	}
	return o.report(out, result)
}

// report writes the last line, and returns the exit code.
func (o *sysdumpOptions) report(out io.Writer, r *sysdump.Result) error {
	size, missing := fmt.Sprintf("%d KiB", (r.Size+1023)>>10), "nothing is missing"
	if r.Missing > 0 {
		missing = fmt.Sprintf("missing: %d, see %s in the archive", r.Missing, sysdump.MissingFile)
	}
	if _, err := fmt.Fprintf(out, "%s: %s, %s\n", o.file, size, missing); err != nil || r.Missing == 0 {
		return err
	}
	return &program.Exit{Code: check.ExitUnread}
}

// outputs are what commands of this program print.
func (o *sysdumpOptions) outputs(k *cluster) []sysdump.Output {
	return []sysdump.Output{
		{Name: "commands/status.txt", Run: k.statusOutput},
		{Name: "commands/check.txt", Run: o.checkOutput},
		{Name: "commands/network-list.txt", Run: o.networkOutput},
		{Name: "commands/limits.txt", Run: func(ctx context.Context, out io.Writer) error {
			list, err := k.limits(ctx)
			if err != nil {
				return execRights(err)
			}
			if o.clients.namespace != "" {
				list = show.LimitsOf(list, o.clients.namespace)
			}
			return show.LimitTable(out, list)
		}},
		{Name: "ovn/nb-show.txt", Run: k.showOutput("nbctl")},
		{Name: "ovn/sb-show.txt", Run: k.showOutput("sbctl")},
		{Name: "ovn/members.txt", Run: k.membersOutput},
	}
}

func (k *cluster) statusOutput(ctx context.Context, out io.Writer) error {
	s, err := k.status(ctx)
	if err != nil {
		return err
	}
	return errors.Join(show.Status(out, s), unreadChecks(s.Checks))
}

func (o *sysdumpOptions) checkOutput(ctx context.Context, out io.Writer) error {
	findings, err := (&checkOptions{clients: o.clients, output: "table", timeout: o.timeout}).run(ctx)
	return errors.Join(err, show.Findings(out, findings), unreadChecks(findings))
}

// unreadChecks names the checks that could not be made.
func unreadChecks(findings []check.Finding) error {
	var names []string
	for i := range findings {
		if findings[i].Unread {
			names = append(names, findings[i].What)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("these checks cannot be made: %s", strings.Join(slices.Compact(names), ", "))
}

func (o *sysdumpOptions) networkOutput(ctx context.Context, out io.Writer) error {
	read := options{clients: o.clients, output: "table", timeout: o.timeout, notes: io.Discard}
	err := read.networks(ctx, func(_ context.Context, _ *ovndb.DB, list []show.Network, _ string) error {
		return show.List(out, list)
	})
	if err == nil && read.states != nil {
		err = fmt.Errorf("only what states say: you need the right to create pods/exec in the namespace %s", installed)
	}
	return err
}

// ofChart makes of the error that the chart does not run OVN that there is nothing to collect.
func ofChart(err error) error {
	if errors.Is(err, errOtherOVN) {
		return fmt.Errorf("%w: %w", sysdump.ErrNone, errOtherOVN)
	}
	return err
}

// showOutput is what OVN's own client shows of a database.
func (k *cluster) showOutput(name string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		i := slices.IndexFunc(tools, func(t tool) bool { return t.name == name })
		call, err := k.toolCall(ctx, tools[i], "", "")
		if err != nil {
			return ofChart(err)
		}
		return execIn(ctx, k.config, k.core, call.in, append(call.command, "show"), nil, out)
	}
}

// memberTimeout is the time for the answer of one member.
const memberTimeout = 10 * time.Second

// membersOutput is what each member of OVN's databases says of itself.
func (k *cluster) membersOutput(ctx context.Context, out io.Writer) error {
	if _, err := k.ofOwnOVN(ctx, "see docs/operations.md"); err != nil {
		return ofChart(err)
	}
	pods, err := k.core.CoreV1().Pods(installed).List(ctx, metav1.ListOptions{LabelSelector: centralLabel})
	if err != nil {
		return execRights(err)
	}
	var errs []error
	for i := range pods.Items {
		p := &pods.Items[i]
		fmt.Fprintf(out, "%s on node %s:\n", p.Name, p.Spec.NodeName)
		in := target{p.Spec.NodeName, p.Name, backups.container}
		one, cancel := context.WithTimeout(ctx, memberTimeout) // a node without power answers nothing
		errs = append(errs, execIn(one, k.config, k.core, in, []string{backups.program, "status"}, nil, out))
		cancel()
		fmt.Fprintln(out)
	}
	return errors.Join(errs...)
}
