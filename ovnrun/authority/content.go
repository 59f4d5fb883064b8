package authority

import (
	"net"
	"slices"

	certificates "k8s.io/api/certificates/v1"
)

// SignerName is the signer of our requests (CertificateSigningRequest, spec.signerName).
const SignerName = "certificates.ovn-multinet/ovn"

// Role is what a certificate is for. It is also the name of the program's ServiceAccount.
type Role string

// The roles.
const (
	Central    Role = "ovn-central" // the databases and ovn-northd
	Node       Role = "ovn-node"    // ovn-controller and the agent of a node
	Controller Role = "controller"  // the controller of ovn-multinet
)

// Serves reports whether the role has servers.
func (r Role) Serves() bool { return r == Central }

// Content is the content of a certificate.
type Content struct {
	Name      string
	Addresses []net.IP
	Usages    []certificates.KeyUsage
}

// ContentOf returns the certificate of a role on a node. Only servers have addresses.
func ContentOf(role Role, node string, addresses []net.IP) Content {
	w := Content{Name: string(role) + "/" + node, Usages: []certificates.KeyUsage{
		certificates.UsageDigitalSignature, certificates.UsageClientAuth}}
	if role.Serves() {
		w.Addresses, w.Usages = addresses, append(w.Usages, certificates.UsageServerAuth)
	}
	return w
}

// Matches reports whether a certificate has the name and the addresses.
func (w Content) Matches(name string, addresses []net.IP) bool {
	return name == w.Name && slices.EqualFunc(addresses, w.Addresses, net.IP.Equal)
}
