package plugin

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Funcs are the functions for the CNI library's skeleton. Every error and every panic becomes a CNI error with a
// code. Every call writes one line into the log file of the configuration.
func (p *Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add: edge("ADD", p.Add), Del: edge("DEL", p.Del), Check: edge("CHECK", p.Check),
		GC: edge("GC", p.GC), Status: edge("STATUS", p.Status),
	}
}

func edge(cmd string, run func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		began := time.Now()
		err := withoutPanic(run, args)
		_ = withoutPanic(func(*skel.CmdArgs) error { // record also reads the configuration
			record(cmd, args, began, err)
			return nil
		}, args)
		if err == nil {
			return nil
		}
		code, msg, details := conf.Describe(err)
		return types.NewError(code, msg, withCode(details, code))
	}
}

// withCode adds the code to the details: kubelet's Event has the text of an error alone.
func withCode(details string, code uint) string {
	return strings.TrimSpace(fmt.Sprintf("%s (code %d)", details, code))
}

func withoutPanic(run func(*skel.CmdArgs) error, args *skel.CmdArgs) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = conf.Errorf(conf.CodeInternal, "a defect in ovn-multinet, please report it: "+firstFrames(debug.Stack()),
				"panic: %v", cause)
		}
	}()
	return run(args)
}

// firstFrames shortens a stack for an Event.
func firstFrames(stack []byte) string {
	return string(stack[:min(len(stack), 1500)])
}

// record writes the log line of a call. An error of the log file must not make a pod fail.
func record(cmd string, args *skel.CmdArgs, began time.Time, err error) {
	c, confErr := newCall(args, conf.Lenient)
	if confErr != nil {
		return
	}
	c.log(cmd, &c.sandbox, func(log *slog.Logger) {
		log = log.With("took", fmt.Sprintf("%.1fms", float64(time.Since(began).Microseconds())/1000))
		if err != nil {
			log.Error("failed", "err", conf.Brief(err))
			return
		}
		log.Info("done")
	})
}

// note writes a further log line about a sandbox. It may be another sandbox than the call's own.
func (c *call) note(s *agentapi.Sandbox, message string, args ...any) {
	c.log("note", s, func(log *slog.Logger) { log.Warn(message, args...) })
}

// log calls write with a logger for the log file that the configuration names.
func (c *call) log(cmd string, s *agentapi.Sandbox, write func(*slog.Logger)) {
	if c.conf.LogFile == "" {
		return
	}
	f, err := os.OpenFile(c.conf.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	write(slog.New(slog.NewTextHandler(f, nil)).With("cmd", cmd, "pod", s.Namespace+"/"+s.Pod,
		"interface", s.Interface, "network", c.conf.Name, "containerID", s.ContainerID))
}
