package kube

import (
	"os"
	"path/filepath"

	"github.com/dsnet/try"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeconfigOf writes a kubeconfig of a user, who has no rights yet, and returns its path.
func (c *Cluster) KubeconfigOf(user string) (string, error) {
	path := c.kubeconfig("user-" + user)
	return path, c.pki.writeKubeconfig(path, apiURL, identity{name: user})
}

// writeKubeconfig writes how one of the cluster's parts reaches the API server, and who it is.
func (p pki) writeKubeconfig(path, server string, id identity) (err error) {
	defer try.Handle(&err)
	pair := try.E1(p.ca.issue(id))
	try.E(os.MkdirAll(filepath.Dir(path), 0o755))
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: p.ca.cert}
	config.AuthInfos[id.name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: id.name}
	config.CurrentContext = "lab"
	return clientcmd.WriteToFile(*config, path)
}
