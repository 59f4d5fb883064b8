package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// The Secrets with the keys of agents and controllers for NB.
const (
	AgentNBSecret      = "ovn-multinet-nb-agent"
	ControllerNBSecret = "ovn-multinet-nb-controller"
)

// ServeNBOverTLS has the lab's NB serve mutual TLS, by an authority made for it. It returns the endpoint, and for agents
// and controllers a Secret each with tls.crt, tls.key and ca.crt. Their certificates are for clients alone, the server's
// names its address.
func (c *Cluster) ServeNBOverTLS(ctx context.Context, namespace string) (endpoint, manifests string, err error) {
	defer try.Handle(&err)
	ca := try.E1(newAuthority("ovn"))
	server := try.E1(ca.issue(identity{name: "ovnnb", hosts: []string{lab.CentralIP}}))
	var secrets []string
	for _, name := range []string{AgentNBSecret, ControllerNBSecret} {
		client := try.E1(ca.issue(identity{name: name}))
		secrets = append(secrets, secretOf(namespace, name, client, ca))
	}
	for name, pair := range map[string]keyPair{"nb-ca": ca.keyPair, "nb": server} {
		try.E(pair.write(c.pkiDir(), name))
	}
	file := func(name string) string { return filepath.Join(c.pkiDir(), name) }
	endpoint, err = c.Lab.ServeNBOverTLS(ctx, file("nb.key"), file("nb.crt"), file("nb-ca.crt"))
	return endpoint, strings.Join(secrets, "---\n"), err
}

func secretOf(namespace, name string, client keyPair, ca *authority) string {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s}
data: {tls.crt: %s, tls.key: %s, ca.crt: %s}
`, name, namespace, b64(client.cert), b64(client.key), b64(ca.cert))
}
