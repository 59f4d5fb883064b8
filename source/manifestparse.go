package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// parseNADConfig parses the configuration of a NAD.
type parseNADConfig func(*nadv1.NetworkAttachmentDefinition) *netmodel.Config

// parse reads all YAML documents of a file.
func (f *file) parse(text []byte, config parseNADConfig) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for i := 0; ; i++ {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f.parseDocument(doc, config)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

func (f *file) parseDocument(doc []byte, config parseNADConfig) error {
	var kind struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	if of := entry.KindOf(kind.Kind); of != nil {
		return f.parseEntry(of, kind.APIVersion, doc)
	}
	switch kind.Kind {
	case "":
		if len(bytes.TrimSpace(doc)) > 0 && !onlyComments(doc) {
			return errors.New("no \"kind\"")
		}
	case "Pod":
		var p corev1.Pod
		if err := yaml.UnmarshalStrict(doc, &p); err != nil {
			return err
		}
		if p.Name == "" {
			return errors.New("Pod without metadata.name")
		}
		f.add(podKind, manifestPod(&p))
	case "NetworkAttachmentDefinition":
		var n nadv1.NetworkAttachmentDefinition
		if err := yaml.UnmarshalStrict(doc, &n); err != nil {
			return err
		}
		if n.Name == "" {
			return errors.New("NetworkAttachmentDefinition without metadata.name")
		}
		n.Namespace = namespaceOr(n.Namespace)
		f.add(nadKind, known(&n, config(&n)))
	case policy.Kind, policy.ClusterKind:
		return f.parsePolicy(kind.Kind, doc)
	case ipamClaimKindName:
		return f.parseClaim(kind.APIVersion, doc)
	case "Service":
		return f.parseService(doc)
	case "Namespace":
		var n corev1.Namespace
		if err := yaml.UnmarshalStrict(doc, &n); err != nil {
			return err
		}
		f.add(namespaceKind, &n)
	case "Node":
		var n corev1.Node
		if err := yaml.UnmarshalStrict(doc, &n); err != nil {
			return err
		}
		if n.Name == "" {
			return errors.New("a Node without metadata.name")
		}
		f.add(nodeKind, &n)
	}
	return nil
}

func onlyComments(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}
