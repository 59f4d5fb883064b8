package lint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// Manifests are the objects of files.
type Manifests struct {
	objects []*object
	unread  []Finding // what cannot be read
}

// object is one object of a file.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec  json.RawMessage   `json:"spec"`
	Items []json.RawMessage `json:"items"`

	file     string
	document int
	text     []byte // as JSON
	kind     kind
	config   string // of a NAD: spec.config
}

// kind is how an object is checked.
type kind int

const (
	kindOther kind = iota
	kindNAD
	kindPod // a pod, or what makes pods
	kindPolicy
	kindService
)

var kinds = map[string]kind{
	"NetworkAttachmentDefinition": kindNAD,
	"Pod":                         kindPod,
	"ReplicationController":       kindPod,
	"ReplicaSet":                  kindPod,
	"Deployment":                  kindPod,
	"StatefulSet":                 kindPod,
	"DaemonSet":                   kindPod,
	"Job":                         kindPod,
	"CronJob":                     kindPod,
	"VirtualMachine":              kindPod,
	"VirtualMachineInstance":      kindPod,
	policy.Kind:                   kindPolicy,
	policy.ClusterKind:            kindPolicy,
	"Service":                     kindService,
}

func (o *object) id() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// String is "<kind> <namespace>/<name>".
func (o *object) String() string {
	name := o.id()
	if o.kind == kindOther || o.Kind == policy.ClusterKind { // the operator's objects have no namespace
		name = o.Metadata.Name
	}
	return conf.OneLine(o.Kind+" "+name, conf.MaxMessage)
}

// Stdin is the name of the standard input among paths.
const Stdin = "-"

// File is the text of a file.
type File struct {
	Name string
	Text []byte
}

// ReadFiles reads files, and all YAML and JSON files in folders and below them.
func ReadFiles(paths []string, stdin io.Reader) (files []File, err error) {
	for _, path := range paths {
		if path == Stdin {
			text, err := io.ReadAll(stdin)
			if err != nil {
				return nil, err
			}
			files = append(files, File{"stdin", text})
			continue
		}
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || name != path && !isManifest(name) {
				return err
			}
			text, err := os.ReadFile(name)
			files = append(files, File{name, text})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Parse reads the objects of files. namespace is that of objects that name none. What cannot be read is in the report
// of Check.
func Parse(files []File, namespace string) *Manifests {
	m := &Manifests{}
	for _, f := range files {
		m.add(f.Name, f.Text, namespace)
	}
	return m
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func (m *Manifests) add(file string, text []byte, namespace string) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for i := 1; ; i++ {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			doc, err = yaml.YAMLToJSONStrict(doc)
		}
		if err == nil {
			err = m.addDocument(file, i, doc, namespace)
		}
		if err != nil {
			m.unread = append(m.unread, Finding{
				File: file, Document: i, Level: Error, Message: conf.OneLine(err.Error(), conf.MaxMessage),
			})
		}
	}
}

// addDocument adds an object, or those of a list.
func (m *Manifests) addDocument(file string, document int, text []byte, namespace string) error {
	if string(text) == "null" { // only comments
		return nil
	}
	o := &object{file: file, document: document, text: text}
	if err := json.Unmarshal(text, o); err != nil {
		return err
	}
	if o.Kind == "" {
		return errors.New(`the document has no "kind"`)
	}
	if strings.HasSuffix(o.Kind, "List") && o.Items != nil {
		var errs []error
		for _, item := range o.Items {
			errs = append(errs, m.addDocument(file, document, item, namespace))
		}
		return errors.Join(errs...)
	}
	if o.kind = kinds[o.Kind]; o.kind != kindOther && o.Metadata.Name == "" {
		return fmt.Errorf("%s without metadata.name", o.Kind)
	}
	if o.Metadata.Namespace == "" {
		o.Metadata.Namespace = namespace
	}
	m.objects = append(m.objects, o)
	return nil
}

// readNAD reads a NAD as the API server would take it. It returns nil if it cannot.
func (l *linter) readNAD(o *object) *netmodel.NAD {
	var n nadv1.NetworkAttachmentDefinition
	decoder := json.NewDecoder(bytes.NewReader(o.text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&n); err != nil {
		l.say(o, Error, "%s", strings.TrimPrefix(err.Error(), "json: "))
		return nil
	}
	o.config = n.Spec.Config
	return &netmodel.NAD{
		Namespace: o.Metadata.Namespace, Name: n.Name, Resource: n.Annotations[netmodel.ResourceNameAnnotation],
		Config: netmodel.ParseConfig(o.Metadata.Namespace, n.Name, n.Spec.Config, netmodel.MaxDelegateConfig),
	}
}

// pod is a pod, or the template of one.
type pod struct {
	annotations map[string]string
	hostNetwork bool
}

// template is a pod template, or a virtual machine's.
type template struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool `json:"hostNetwork"`
		Networks    []struct {
			Multus *struct {
				NetworkName string `json:"networkName"`
			} `json:"multus"`
		} `json:"networks"`
	} `json:"spec"`
}

// pod is the pod that an object makes.
func (o *object) pod() *pod {
	var t template
	var spec struct {
		Template    *template `json:"template"`
		JobTemplate struct {
			Spec struct {
				Template template `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	}
	_ = json.Unmarshal(o.Spec, &spec) // of another form: the API server refuses it
	switch {
	case o.Kind == "Pod" || o.Kind == "VirtualMachineInstance":
		_ = json.Unmarshal(o.text, &t)
	case o.Kind == "CronJob":
		t = spec.JobTemplate.Spec.Template
	case spec.Template != nil:
		t = *spec.Template
	}
	p := &pod{annotations: t.Metadata.Annotations, hostNetwork: t.Spec.HostNetwork}
	if p.annotations == nil {
		p.annotations = map[string]string{}
	}
	var networks []string // KubeVirt makes the annotation of its pod of them
	for _, n := range t.Spec.Networks {
		if n.Multus != nil {
			networks = append(networks, n.Multus.NetworkName)
		}
	}
	if len(networks) > 0 {
		p.annotations[conf.NetworksAnnotation] = strings.Join(networks, ",")
	}
	return p
}
