package lab

import (
	"context"
	"errors"
	"net"
	"strings"
)

// NB is a Northbound database: the lab's own, or one that [Options.NB] started.
type NB struct {
	Endpoints []string // of agents, controllers and northd, from every node's namespace
	Sockets   []string // paths of unix sockets; of a raft, those of all members
	// Files of agents, controllers and northd for mutual TLS; "": the endpoints are without TLS.
	PrivateKey, Certificate, CACert string
}

// ownNB is the database that the lab starts itself.
func (l *Lab) ownNB() NB {
	return NB{Endpoints: []string{"tcp:" + centralIP + ":" + nbPort}, Sockets: []string{l.NBSocket()}}
}

// remote is the database in the notation of OVS's clients on this machine.
func (nb NB) remote() string { return "unix:" + strings.Join(nb.Sockets, ",unix:") }

// ofOurs are the flags of agents and controllers.
func (nb NB) ofOurs(endpoint string) []string {
	if endpoint == "" {
		endpoint = strings.Join(nb.Endpoints, ",")
	}
	flags := []string{"--nb-endpoints", endpoint}
	if nb.CACert != "" {
		flags = append(flags, "--nb-private-key", nb.PrivateKey, "--nb-certificate", nb.Certificate,
			"--nb-ca-cert", nb.CACert)
	}
	return flags
}

// ofNorthd are the flags of ovn-northd. With TLS it uses the endpoints: on a unix socket it would not notice a server
// that does not answer.
func (nb NB) ofNorthd() []string {
	if nb.CACert == "" {
		return []string{"--ovnnb-db=" + nb.remote()}
	}
	return []string{"--ovnnb-db=" + strings.Join(nb.Endpoints, ","), "--private-key=" + nb.PrivateKey,
		"--certificate=" + nb.Certificate, "--ca-cert=" + nb.CACert}
}

// connected is a readiness check: the process is connected to one of the endpoints.
func (nb NB) connected(p *Process) func(context.Context) error {
	return func(context.Context) error {
		var errs []error
		for _, endpoint := range nb.Endpoints {
			_, address, _ := strings.Cut(endpoint, ":")
			_, port, err := net.SplitHostPort(address)
			if err == nil {
				err = p.connectedTo(port)
			}
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
}

// OnCentral calls f on a thread that is in the namespace of the databases.
func (l *Lab) OnCentral(f func() error) error { return inNetNS(l.central, f) }
