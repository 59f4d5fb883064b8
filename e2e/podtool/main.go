// Command podtool owns what pods of the lab run: one static program that is all there is in their images. It may not
// need any file but itself.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: podtool COMMAND

  pause                     sleep until SIGTERM and reap what is left by others
  serve [-port N]           answer GET /healthz, /hostname, /client (the client's address) and /ip (what "ip"
                            prints) over HTTP
  ping [-c N] [-W SECONDS] [-I INTERFACE] ADDRESS
  ip                        print links, addresses and routes as JSON
  get [-network tcp4] URL   print the answer of a web server; by one family alone with tcp4 or tcp6
  dns [-port N]             answer every question for a name's address with 192.0.2.53, over UDP
  lookup [-type TYPE] NAME  print a name's addresses, or answers of type A, AAAA, SRV or PTR
  api PATH                  print the API server's answer to the pod's own service account
`

var commands = map[string]func(args []string) error{
	"pause": pause, "serve": serve, "ping": ping, "ip": printNetwork, "get": get, "api": api, "dns": serveDNS, "lookup": lookup,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "podtool %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func pause([]string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for s := range signals {
		if s != syscall.SIGCHLD {
			break
		}
		reap()
	}
	return nil
}

// reap collects the children that have ended; of many, one signal tells.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
