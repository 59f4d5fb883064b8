package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"
)

// nodeClaim is the key under which the API server notes the node that a pod's token is bound to (Kubernetes 1.30 and
// later).
const nodeClaim = "authentication.kubernetes.io/node-name"

// asker is the program that a request comes from, as the API server knows it.
type asker struct {
	role Role
	node string
	uid  string // of the Node, once it is known
}

func (a asker) name() string { return string(a.role) + "/" + a.node }

// errNotOurs is the error about a request of a program that is none of ours.
var errNotOurs = errors.New("gets no certificate of OVN")

// askerOf reads who made a request. Only programs of ours in the namespace get certificates, and each one has to run on
// a node.
func askerOf(csr *certificates.CertificateSigningRequest, namespace string) (asker, error) {
	account, ours := strings.CutPrefix(csr.Spec.Username, "system:serviceaccount:"+namespace+":")
	role := Role(account)
	if !ours || !slices.Contains([]Role{Central, Node, Controller}, role) {
		return asker{}, fmt.Errorf("%q %w", csr.Spec.Username, errNotOurs)
	}
	node := csr.Spec.Extra[nodeClaim]
	if len(node) != 1 || node[0] == "" {
		return asker{}, errors.New("the token does not name the node that it was issued for: " +
			"it is not a pod's (Kubernetes 1.30 or later)")
	}
	return asker{role: role, node: node[0]}, nil
}

// check refuses a request for anything but the certificate of the asker. A server's has these addresses.
func check(
	csr *certificates.CertificateSigningRequest, who asker, addresses []net.IP,
) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("spec.request is not one certificate request")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, err
	}
	content := ContentOf(who.role, who.node, addresses)
	if !content.Matches(request.Subject.CommonName, request.IPAddresses) {
		return nil, fmt.Errorf("the program %s on node %s gets a certificate for %q with the addresses %v, "+
			"not for %q with %v",
			who.role, who.node, content.Name, content.Addresses, request.Subject.CommonName, request.IPAddresses)
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.URIs) > 0 || len(request.Subject.Names) != 1 {
		return nil, errors.New("the request has further names")
	}
	other := func(u certificates.KeyUsage) bool { return !slices.Contains(content.Usages, u) }
	if len(csr.Spec.Usages) != len(content.Usages) || slices.ContainsFunc(csr.Spec.Usages, other) {
		return nil, fmt.Errorf("the usages %v are not those of %s: %v", csr.Spec.Usages, who.role, content.Usages)
	}
	return request, nil
}
