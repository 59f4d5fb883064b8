package conf

import "strings"

// Annotations of a pod that concern us: the first two are multi-net-spec 1.3's (sections 4 and 3.4), ours have the
// prefix.
const (
	NetworksAnnotation       = "k8s.v1.cni.cncf.io/networks"
	DefaultNetworkAnnotation = "v1.multus-cni.io/default-network"
	AnnotationPrefix         = "ovn-multinet/"
	RoutesAnnotation         = AnnotationPrefix + "routes"
)

// OwnAnnotations returns those of a pod's annotations that concern us. If there are none, the pod is a plain one.
func OwnAnnotations(annotations map[string]string) map[string]string {
	own := map[string]string{}
	for key, value := range annotations {
		if key == NetworksAnnotation || key == DefaultNetworkAnnotation || strings.HasPrefix(key, AnnotationPrefix) {
			own[key] = value
		}
	}
	return own
}
