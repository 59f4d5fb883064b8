package check

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// checkAuthority judges the authority that OVN's programs trust: without it, no pod gets a network.
func (c *Cluster) checkAuthority(now time.Time) []Finding {
	const what = "ovn-authority"
	if !c.bringsOVN() || c.unreadable("distrusted") { // the ConfigMap is read for that check
		return nil
	}
	const where = "ConfigMap " + Namespace + "/" + authority.ConfigMapName
	const logs = "kubectl -n " + Namespace + " logs deployment/controller says why the controllers do not write it"
	// The controllers make another authority without the Secret, and the programs get certificates of it.
	const replace = "kubectl -n " + Namespace + " delete secret " + authority.SecretName +
		"; with another signer, give that one a new authority"
	block, _ := pem.Decode([]byte(c.Authority[authority.BundleKey]))
	if block == nil {
		return []Finding{fault(what, logs, "%s has no certificate: nobody can prove who signs", where)}
	}
	signs, err := x509.ParseCertificate(block.Bytes) // the first one signs
	form := time.DateTime + " MST"
	switch {
	case err != nil:
		return []Finding{fault(what, replace, "%s: %v", where, err)}
	case now.After(signs.NotAfter):
		return []Finding{fault(what, replace, "the authority of OVN's certificates has ended, on %s",
			signs.NotAfter.UTC().Format(form))}
	case now.Before(signs.NotBefore):
		return []Finding{fault(what, "correct the clocks of this computer and of the control planes; "+
			"if these are right: "+replace, "the authority of OVN's certificates begins in the future, on %s",
			signs.NotBefore.UTC().Format(form))}
	}
	return []Finding{ok(what, "the authority of OVN's certificates is valid until %s", signs.NotAfter.UTC().Format(form))}
}
