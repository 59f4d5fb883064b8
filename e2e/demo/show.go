package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/dsnet/try"
	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// status reads a pod's network-status from the file beside its manifest.
func (d *demo) status(p *lab.Pod) ([]nadv1.NetworkStatus, error) {
	text, err := os.ReadFile(filepath.Join(d.Manifests, p.UID+".status.json"))
	if err != nil {
		return nil, err
	}
	var file struct {
		Status []nadv1.NetworkStatus `json:"network-status"`
	}
	return file.Status, json.Unmarshal(text, &file)
}

// table prints what each pod has, from its network-status.
func (d *demo) table(context.Context) (err error) {
	defer try.Handle(&err)
	step("what the pods have, from their network-status")
	fmt.Println()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "      POD\tNODE\tINTERFACE\tNETWORK\tIP\tMAC\tPORT")
	for _, p := range d.all {
		status := try.E1(d.status(p))
		for _, s := range status {
			port := "-" // Flannel's
			if !s.Default {
				port = p.String() + "/" + s.Interface
			}
			fmt.Fprintf(t, "      %s\t%s\t%s\t%s\t%s\t%s\t%s\n", p, p.Node.Name, s.Interface, s.Name, strings.Join(s.IPs, " "), s.Mac, port)
		}
	}
	try.E(t.Flush())
	fmt.Println()
	return nil
}

// reach pings across the nodes, and where isolation must stop it.
func (d *demo) reach(ctx context.Context) (err error) {
	defer try.Handle(&err)
	step("who reaches whom, between nodes")
	fmt.Println()
	web0, web1, db0 := d.all[0], d.all[1], d.all[2]
	for _, c := range []struct {
		from   *lab.Pod
		by     string
		to     *lab.Pod
		at     int // entry of its network-status
		ip     int
		passes bool
	}{
		{web0, "eth0", web1, 0, 0, true},
		{web0, "net1", web1, 1, 0, true},
		{web0, "net1", db0, 1, 0, true},
		{web0, "net2", web1, 2, 0, true},
		{web0, "net2", web1, 2, 1, true},
		{db0, "net1", web0, 2, 0, false},
		{web0, "net1", web1, 2, 0, false},
	} {
		status := try.E1(d.status(c.to))
		try.E(d.ping(ctx, c.from, c.by, c.to, status[c.at], status[c.at].IPs[c.ip], c.passes))
	}
	fmt.Println()
	return nil
}

func (d *demo) ping(ctx context.Context, from *lab.Pod, by string, to *lab.Pod, s nadv1.NetworkStatus, ip string, passes bool) error {
	try := func() error {
		_, err := from.Exec(ctx, "ping", "-c", "1", "-W", "1", "-I", by, ip)
		return err
	}
	var err error
	if passes {
		err = lab.Eventually(ctx, try) // the other node's flows may still be on their way
	} else {
		err = try()
	}
	verdict := "answers"
	if err != nil {
		verdict = "no answer"
	}
	if !passes {
		verdict += ", as isolation wants it"
	}
	fmt.Printf("      %-10s %-4s → %-10s on %-10s %-16s %s\n", from, by, to, s.Name, ip, verdict)
	if passes != (err == nil) {
		return fmt.Errorf("ping from %s by %s to %s: answered %t, want %t", from, by, ip, err == nil, passes)
	}
	return nil
}

// northbound prints what was written: the port row is the lease.
func (d *demo) northbound(ctx context.Context) error {
	step("what is in OVN's Northbound database: each port's row key ends in its address")
	out, err := d.NBCtl(ctx, "--format=table", "--no-headings", "--columns=_uuid,name,addresses", "list", "Logical_Switch_Port")
	if err != nil {
		return err
	}
	fmt.Println()
	show(out)
	return nil
}

// tool shows what operators see of it.
func (d *demo) tool(ctx context.Context) error {
	for _, args := range [][]string{{"network", "list"}, {"network", "show", "shop/green"}} {
		step("kubectl multinet %s", strings.Join(args, " "))
		out, err := d.Multinet(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Println()
		show(out)
	}
	return nil
}
