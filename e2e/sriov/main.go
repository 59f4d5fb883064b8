// Command sriov owns the machine that the SR-IOV scenarios run in: it fetches what that is made of, boots it with the
// project's programs inside, and tells what became of each scenario. It may install nothing, and needs no root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.run, "run", "", "only the scenarios that match, as go test has it")
	flag.BoolVar(&o.verbose, "v", false, "print all that the guest prints")
	flag.DurationVar(&o.timeout, "timeout", 40*time.Minute, "for the guest")
	flag.StringVar(&o.shell, "exec", "", "run this in the guest's shell, and no scenario")
	flag.Parse()
	o.sriovCNI = os.Getenv("SRIOV_CNI")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	code, err := o.main(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-sriov:", err)
		code = 1
	}
	os.Exit(code)
}
