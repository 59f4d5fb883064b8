package plugin

import (
	"context"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/node/wiring"
)

// Check is CNI's CHECK: the plugin checks the kernel and the delegates, and the agent checks the ports and OVS ports.
func (p *Plugin) Check(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Strict)
	if err != nil {
		return err
	}
	e, err := c.journal.Read(&c.sandbox)
	if e == nil || err != nil {
		return err
	}
	if e.Plan == nil {
		return conf.Errorf(conf.CodeTryAgain, "the runtime should DEL this container",
			"the ADD of container %.12s did not finish", c.sandbox.ContainerID)
	}
	if err := wiring.CheckNetns(args.Netns); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.conf.Timeout)
	defer cancel()
	agent := &agentapi.Client{Socket: c.conf.AgentSocket, Patience: delPatience}
	defer agent.Close()
	if len(e.Changing) > 0 { // the pod has the others
		e = e.Part(e.Settled().Names())
	}
	err = wiring.Check(args.Netns, &c.sandbox, e.Plan)
	if err == nil {
		err = c.runner().Check(ctx, e)
	}
	if err != nil {
		if !conf.HasCode(err, conf.CodeTryAgain) {
			c.tellFault(agent, e, err)
		}
		return err
	}
	if len(e.Plan.Interfaces) == 0 {
		return nil
	}
	return agent.Call(ctx, agentapi.OpCheck, agentapi.CheckRequest{Sandbox: e.Sandbox, Plan: *e.Plan}, nil)
}

// tellFault has the agent tell the pod's owner what is wrong. The runtime gets the error anyway, so an agent that does
// not answer is no further error.
func (c *call) tellFault(agent *agentapi.Client, e *journal.Entry, fault error) {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	request := agentapi.CheckRequest{Sandbox: e.Sandbox, Fault: agentapi.Fault(fault)}
	if err := agent.Call(ctx, agentapi.OpCheck, request, nil); err != nil {
		c.note(&e.Sandbox, "the pod's owner is not told of the fault", "err", err)
	}
}

// Status is CNI's STATUS. It is an error until the agent was ready once since boot. A later outage of the agent is no
// error, because pods without further networks can still start. With strictStatus in the configuration, such an
// outage is an error.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	c, err := newCall(args, conf.Strict)
	if err != nil {
		return err
	}
	if !exists(agentapi.ReadyMarker(c.conf.AgentSocket)) {
		return conf.Errorf(conf.CodeNotAvailable, "is the ovn-multinet agent running on this node, what does its log say?",
			"the agent at %s was not ready yet since boot", c.conf.AgentSocket)
	}
	if !c.conf.StrictStatus {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	agent := &agentapi.Client{Socket: c.conf.AgentSocket}
	defer agent.Close()
	err = agent.Call(ctx, agentapi.OpStatus, agentapi.StatusRequest{Sandbox: c.sandbox}, nil)
	if err == nil || conf.HasCode(err, conf.CodeNotAvailable) || conf.HasCode(err, conf.CodeLimited) {
		return err
	}
	_, _, details := conf.Describe(err)
	return conf.Errorf(conf.CodeNotAvailable, details, "%w", err)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
