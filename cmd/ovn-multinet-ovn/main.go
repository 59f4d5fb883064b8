// Command ovn-multinet-ovn runs one of OVN's or Open vSwitch's daemons in a container, when the chart brings OVN.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/ovnrun"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// config is what the flags of all commands say.
type config struct {
	node, ip, members, logLevel  string
	tls                          ovnrun.Files
	runDir, dataDir              string
	host                         ovnrun.Host
	role, signer, namespace, pki string
	life                         time.Duration
}

func main() {
	var c config
	cmd := &cobra.Command{Use: "ovn-multinet-ovn", Short: "Runs OVN's own daemons on the nodes of a cluster."}
	flags := cmd.PersistentFlags()
	program.LogFlag(flags, &c.logLevel)
	flags.StringVar(&c.node, "node-name", "", "name of this node")
	flags.StringVar(&c.ip, "node-ip", "", "address of this node")
	flags.StringVar(&c.members, "members", "/etc/ovn-multinet/ovn", "mounted folder of the ConfigMap with the members")
	flags.StringVar(&c.pki, "certificates", "/etc/ovn-multinet/pki", "folder with tls.key, tls.crt and ca.crt")
	cmd.AddCommand(c.database(), c.northd(), c.ovsdb(), c.vswitchd(), c.controller(), c.certificates(), c.ready(),
		c.status(), c.remove(), c.backup(), c.restore())
	os.Exit(program.Main(cmd))
}

// runner is the work of a command. The address is the node's.
type runner func(ctx context.Context, log *slog.Logger, ip netip.Addr) error

// command is a command whose node is known.
func (c *config) command(use, short string, run runner) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		ip, err := netip.ParseAddr(c.ip)
		if err != nil {
			return fmt.Errorf("--node-ip: %w", err)
		}
		if c.node == "" {
			return fmt.Errorf("--node-name is empty")
		}
		c.tls = ovnrun.Files{Certificate: c.pki + "/tls.crt", PrivateKey: c.pki + "/tls.key", CACert: c.pki + "/ca.crt"}
		return run(cmd.Context(), daemon.Logger(c.logLevel), ip)
	}}
}

// OVN's schemas in the image.
const (
	ovnSchemas = "/usr/share/ovn/"
	ovsSchema  = "/usr/share/openvswitch/vswitch.ovsschema"
)

func (c *config) databaseFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.runDir, "run-dir", "/run/ovn", "folder of sockets")
	flags.StringVar(&c.dataDir, "data-dir", "/var/lib/ovn-multinet/ovn", "folder of the databases, on the node's disk")
}

func (c *config) newDatabase(name string, log *slog.Logger) (*ovnrun.Database, error) {
	kind, err := ovnrun.KindOf(name)
	return &ovnrun.Database{Kind: kind, Node: c.node, Dir: c.dataDir, RunDir: c.runDir, TLS: c.tls, Members: c.members,
		Schema: ovnSchemas + "ovn-" + name + ".ovsschema", Log: log}, err
}

func (c *config) database() *cobra.Command {
	var name string
	var timer time.Duration
	run := func(ctx context.Context, log *slog.Logger, _ netip.Addr) error {
		d, err := c.newDatabase(name, log)
		if err != nil {
			return err
		}
		if timer < time.Second || timer > 10*time.Minute {
			return fmt.Errorf("--election-timer is %s, give 1s to 10m", timer)
		}
		d.ElectionTimer = timer
		return d.Run(ctx)
	}
	cmd := c.command("database", "Run a member of the raft of NB or SB.", run)
	c.databaseFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "nb or sb")
	cmd.Flags().DurationVar(&timer, "election-timer", 4*time.Second,
		"how long a member hears nothing of the leader before it asks for an election, from 1s to 10m")
	return cmd
}

func (c *config) northd() *cobra.Command {
	cmd := c.command("northd", "Run ovn-northd.", func(ctx context.Context, log *slog.Logger, _ netip.Addr) error {
		n := ovnrun.Northd{RunDir: c.runDir, TLS: c.tls, Members: c.members, Log: log}
		return n.Run(ctx)
	})
	c.databaseFlags(cmd.Flags())
	return cmd
}

func (c *config) hostCommand(use, short string, run func(*ovnrun.Host, context.Context) error) *cobra.Command {
	cmd := c.command(use, short, func(ctx context.Context, log *slog.Logger, ip netip.Addr) error {
		h := c.host
		h.Node, h.IP, h.Schema, h.TLS, h.Members, h.Log = c.node, ip, ovsSchema, c.tls, c.members, log
		return run(&h, ctx)
	})
	flags := cmd.Flags()
	flags.StringVar(&c.host.Bridge, "bridge", "br-int", "OVN's integration bridge")
	flags.StringVar(&c.host.Datapath, "datapath", ovnrun.DatapathAuto,
		"auto, kernel or userspace; auto: the kernel's, if the node has the module")
	flags.StringVar(&c.host.TunnelInterface, "tunnel-interface", "",
		"interfaces whose address the tunnels use, or IPv4 subnets of this address, with commas: the first that the node "+
			"has; empty: the node's address. The userspace datapath needs a NIC of its own")
	flags.StringVar(&c.host.DBDir, "data-dir", "/var/lib/ovn-multinet/openvswitch", "folder of Open vSwitch's database")
	flags.StringVar(&c.host.RunDir, "run-dir", "/run/openvswitch", "folder of Open vSwitch's sockets")
	flags.StringVar(&c.host.OVNRunDir, "ovn-run-dir", "/run/ovn", "folder of ovn-controller's socket")
	return cmd
}

func (c *config) ovsdb() *cobra.Command {
	return c.hostCommand("ovsdb", "Run the server of Open vSwitch's database.", (*ovnrun.Host).RunOVSDB)
}

func (c *config) vswitchd() *cobra.Command {
	return c.hostCommand("vswitchd", "Run ovs-vswitchd.", (*ovnrun.Host).RunVSwitchd)
}

func (c *config) controller() *cobra.Command {
	cmd := c.hostCommand("controller", "Configure the node's Open vSwitch and run ovn-controller.",
		(*ovnrun.Host).RunController)
	cmd.Flags().StringVar(&c.host.DeniedLog, "denied-log", "",
		"file for the packets that network policies deny, if the policies ask for that; empty: none")
	return cmd
}

// dataFolder has everything of OVN on the node's disk.
const dataFolder = "/var/lib/ovn-multinet"

func (c *config) remove() *cobra.Command {
	return c.hostCommand("remove", "Take Open vSwitch and OVN off the node, with all databases. The daemons have ended.",
		func(h *ovnrun.Host, ctx context.Context) error { return h.Remove(ctx, dataFolder) })
}

// backup and restore are for an operator, who runs them in the pod of a member.
func (c *config) backup() *cobra.Command {
	return c.copying("backup", "Print a backup of NB.", func(cmd *cobra.Command, d *ovnrun.Database) error {
		return d.Backup(cmd.Context(), cmd.OutOrStdout())
	})
}

func (c *config) restore() *cobra.Command {
	return c.copying("restore", "Replace NB by a backup, which the command reads from its standard input.",
		func(cmd *cobra.Command, d *ovnrun.Database) error { return d.Restore(cmd.Context(), cmd.InOrStdin()) })
}

func (c *config) copying(use, short string, run func(*cobra.Command, *ovnrun.Database) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		d, err := c.newDatabase(ovnrun.NB.Name, nil)
		if err != nil {
			return err
		}
		return run(cmd, d)
	}}
	c.databaseFlags(cmd.Flags())
	return cmd
}

func (c *config) certificates() *cobra.Command {
	var kubeconfig string
	cmd := c.command("certificates", "Keep this program's certificate up to date.",
		func(ctx context.Context, log *slog.Logger, ip netip.Addr) error {
			if err := authority.CheckLife(c.life); err != nil {
				return fmt.Errorf("--certificate-life: %w", err)
			}
			client, _, err := daemon.Kubernetes(kubeconfig)
			if err != nil {
				return err
			}
			return c.keeper(client, ip, log).Run(ctx)
		})
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the cluster that the process runs in")
	cmd.Flags().StringVar(&c.role, "role", "", "ovn-central, ovn-node or controller")
	cmd.Flags().StringVar(&c.signer, "signer-name", authority.SignerName, "signer of the requests for certificates")
	cmd.Flags().DurationVar(&c.life, "certificate-life", authority.DefaultLife,
		"how long a certificate is valid, from 1h to 720h; it is renewed after two thirds of this time")
	cmd.Flags().StringVar(&c.namespace, "namespace", "ovn-multinet",
		"namespace of the ConfigMap with the authority's certificates")
	return cmd
}

func (c *config) keeper(client kubernetes.Interface, ip netip.Addr, log *slog.Logger) *ovnrun.Certificates {
	return &ovnrun.Certificates{Client: client, SignerName: c.signer, Life: c.life, Role: authority.Role(c.role),
		Node: c.node, IP: ip, Namespace: c.namespace, Dir: c.pki, Spread: ovnrun.Spread, Log: log}
}

// status is for kubectl multinet.
func (c *config) status() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Args: cobra.NoArgs,
		Short: "Print what the servers of the databases and northd of this node say of themselves, as JSON.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(ovnrun.Status(cmd.Context(), c.runDir))
		}}
	cmd.Flags().StringVar(&c.runDir, "run-dir", "/run/ovn", "folder of sockets")
	return cmd
}

// ready is for the probes of kubelet.
func (c *config) ready() *cobra.Command {
	cmd := &cobra.Command{Use: "ready certificates|nb|sb|northd|ovsdb|vswitchd|controller", Args: cobra.ExactArgs(1),
		Short: "End with 0 if there is a certificate, if the database has joined its raft, or if the daemon answers.",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "certificates":
				return c.keeper(nil, netip.Addr{}, nil).Ready()
			case ovnrun.NB.Name, ovnrun.SB.Name:
			default:
				return ovnrun.Ready(cmd.Context(), c.runDir, args[0])
			}
			d, err := c.newDatabase(args[0], nil)
			if err != nil {
				return err
			}
			return d.Ready(cmd.Context())
		}}
	c.databaseFlags(cmd.Flags())
	return cmd
}
