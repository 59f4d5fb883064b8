package kube

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
)

// ServeNBOverTLS has the lab's NB serve mutual TLS, by an authority made for it. It returns the endpoint, and for the
// clients a Secret with tls.crt, tls.key and ca.crt. As ovs-pki's, the server's certificate names no host.
func (c *Cluster) ServeNBOverTLS(ctx context.Context, namespace, secret string) (endpoint, manifest string, err error) {
	ca, err := newAuthority("ovn")
	if err != nil {
		return "", "", err
	}
	server, err := ca.issue(identity{name: "ovnnb"})
	if err != nil {
		return "", "", err
	}
	client, err := ca.issue(identity{name: "ovn-multinet"})
	if err != nil {
		return "", "", err
	}
	for name, pair := range map[string]keyPair{"nb-ca": ca.keyPair, "nb": server} {
		if err := pair.write(c.pkiDir(), name); err != nil {
			return "", "", err
		}
	}
	file := func(name string) string { return filepath.Join(c.pkiDir(), name) }
	endpoint, err = c.Lab.ServeNBOverTLS(ctx, file("nb.key"), file("nb.crt"), file("nb-ca.crt"))
	b64 := base64.StdEncoding.EncodeToString
	return endpoint, fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s}
data: {tls.crt: %s, tls.key: %s, ca.crt: %s}
`, secret, namespace, b64(client.cert), b64(client.key), b64(ca.cert)), err
}
