package conf

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Annotations of a pod that we read. The first two are of multi-net-spec 1.3 (sections 4 and 3.4); ours have the
// prefix.
const (
	NetworksAnnotation       = "k8s.v1.cni.cncf.io/networks"
	DefaultNetworkAnnotation = "v1.multus-cni.io/default-network"
	AnnotationPrefix         = "ovn-multinet/"
	RoutesAnnotation         = AnnotationPrefix + "routes"
	OutsideAnnotation        = AnnotationPrefix + "outside-addresses"
	// RepairAnnotation asks for what a running pod has broken of its interfaces: each new value once, RepairAlways
	// whenever something is missing.
	RepairAnnotation = AnnotationPrefix + "repair"
	RepairAlways     = "always"
)

// OutsideCondition is the type of the condition of a pod (PodCondition in the API of Kubernetes) that says what has
// become of the pod's outside addresses. A readiness gate may name it.
const OutsideCondition = "ovn-multinet/OutsideAddresses"

// NetworkAnnotations returns the annotations of a pod that we read. A pod without any has no attachments.
func NetworkAnnotations(annotations map[string]string) map[string]string {
	own := map[string]string{}
	for key, value := range annotations {
		if key == NetworksAnnotation || key == DefaultNetworkAnnotation || strings.HasPrefix(key, AnnotationPrefix) {
			own[key] = value
		}
	}
	return own
}

// MaxAnnotation bounds the value of each annotation, in bytes.
const MaxAnnotation = 64 << 10

// maxKey is the length of the longest key that the Kubernetes API accepts: a prefix of 253 bytes, a slash and a name of
// 63.
const maxKey = 253 + 1 + 63

// oversized replaces the value of an annotation that is too long.
const oversized = "\x00%d bytes"

// TrimAnnotations returns what a source keeps in memory of a pod's annotations. nad.ParseRequests and nad.ParseRouting
// give the same answer for these annotations as for all. The size of a value replaces a value over MaxAnnotation.
// Unknown keys are refused whatever their value, so only the first is kept.
func TrimAnnotations(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	unknown := false
	own := NetworkAnnotations(annotations)
	for _, key := range slices.Sorted(maps.Keys(own)) {
		switch value := own[key]; {
		case key == DefaultNetworkAnnotation:
			kept[key] = ""
		case key != NetworksAnnotation && key != RoutesAnnotation && key != OutsideAnnotation && key != RepairAnnotation:
			if !unknown {
				kept[strings.Clone(key[:min(len(key), maxKey)])] = ""
			}
			unknown = true
		case strings.TrimSpace(value) == "":
			kept[key] = ""
		case len(value) > MaxAnnotation:
			kept[key] = fmt.Sprintf(oversized, len(value))
		default:
			kept[key] = value
		}
	}
	return kept
}

// maxRepair is the longest value of RepairAnnotation, in bytes. The node keeps it.
const maxRepair = 63

// Repair returns the value of RepairAnnotation; "": the pod asks for nothing.
func Repair(annotations map[string]string) (string, error) {
	value := strings.TrimSpace(annotations[RepairAnnotation])
	if len(value) > maxRepair || OneLine(value, maxRepair) != value {
		return "", fmt.Errorf("want at most %d printable characters, such as the time or %q", maxRepair, RepairAlways)
	}
	return value, nil
}

// CheckAnnotation refuses the value of an annotation that is over MaxAnnotation, also if a source has replaced it.
func CheckAnnotation(value string) error {
	size := len(value)
	if words, ok := strings.CutSuffix(value, " bytes"); ok && strings.HasPrefix(words, "\x00") {
		if n, err := strconv.Atoi(words[1:]); err == nil {
			size = n
		}
	}
	if size > MaxAnnotation {
		return TooLarge(size, MaxAnnotation)
	}
	return nil
}
