// Package convert owns what manifests of Nodus (ovn4nfv) become here: networks and provider networks, and the
// annotations of pods. It works offline. Nothing is lost in silence: each thing without a counterpart is a comment in
// the result and a remark.
package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/kubectl/lint"
)

// group is the API group of Nodus.
const group = "k8s.plugin.opnfv.org"

// Result is what manifests become.
type Result struct {
	YAML    []byte
	Remarks []string // what has no counterpart, or needs a decision; also comments in YAML
}

// converter converts the documents of all files together: pods name networks of other files.
type converter struct {
	networks map[string]*network // by name; Nodus has one switch for each, whatever the namespace
	physical map[string]*physical
	nads     map[string]bool // by "<namespace>/<name>": whether it only calls Nodus' plugin
	remarks  []string
}

// document is one YAML document.
type document struct {
	node         *yaml.Node
	kind         string
	group        string
	name         string
	space        string // namespace
	comments     []string
	onlyComments bool
}

// Convert converts the manifests in files. namespace is that of objects that name none.
func Convert(files []lint.File, namespace string) (*Result, error) {
	var docs []*document
	for _, file := range files {
		some, err := read(file.Text, namespace)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		docs = append(docs, some...)
	}
	c := &converter{networks: map[string]*network{}, physical: map[string]*physical{}, nads: map[string]bool{}}
	for _, d := range docs {
		if err := c.note(d); err != nil {
			return nil, fmt.Errorf("%s: %w", d.id(), err)
		}
	}
	for _, d := range docs {
		if err := c.convert(d); err != nil {
			return nil, fmt.Errorf("%s: %w", d.id(), err)
		}
	}
	docs = append(docs, c.objects()...)
	var out bytes.Buffer
	for i, d := range docs {
		for _, comment := range d.comments {
			c.remarks = append(c.remarks, conf.OneLine(fmt.Sprintf("%s: %s", d.id(), comment), conf.MaxMessage))
		}
		if err := d.write(&out, i); err != nil {
			return nil, err
		}
	}
	return &Result{YAML: out.Bytes(), Remarks: c.remarks}, nil
}

func read(text []byte, namespace string) (docs []*document, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		node := &yaml.Node{}
		err := decoder.Decode(node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		var head struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string `yaml:"kind"`
			Metadata   struct {
				Name      string `yaml:"name"`
				Namespace string `yaml:"namespace"`
			} `yaml:"metadata"`
		}
		if err := node.Decode(&head); err != nil {
			return nil, err
		}
		if head.Kind == "List" {
			return nil, errors.New("a List is not converted: write its items as documents of their own")
		}
		if head.Metadata.Namespace == "" {
			head.Metadata.Namespace = namespace
		}
		of, _, _ := strings.Cut(head.APIVersion, "/")
		docs = append(docs, &document{
			node: node, kind: head.Kind, group: of, name: head.Metadata.Name, space: head.Metadata.Namespace,
		})
	}
}

// write writes the document with its comments before it.
func (d *document) write(out *bytes.Buffer, i int) error {
	if i > 0 {
		out.WriteString("---\n")
	}
	for _, comment := range d.comments {
		fmt.Fprintf(out, "# %s\n", conf.OneLine(comment, conf.MaxMessage))
	}
	if d.onlyComments {
		return nil
	}
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	if err := encoder.Encode(d.node); err != nil {
		return err
	}
	return encoder.Close()
}

// id names the object.
func (d *document) id() string {
	if d.space == "" { // the operator's objects have no namespace
		return d.kind + " " + d.name
	}
	return d.kind + " " + d.space + "/" + d.name
}

func (d *document) say(format string, values ...any) {
	d.comments = append(d.comments, fmt.Sprintf(format, values...))
}

// note notes what pods may name.
func (c *converter) note(d *document) error {
	if d.kind == "NetworkAttachmentDefinition" {
		c.nads[d.space+"/"+d.name] = isTrampoline(d.node)
	}
	if d.group != group || d.kind != "Network" && d.kind != "ProviderNetwork" {
		return nil
	}
	var object struct {
		Spec networkSpec `yaml:"spec"`
	}
	if err := d.node.Decode(&object); err != nil {
		return err
	}
	n := &network{networkSpec: object.Spec, namespace: d.space, name: d.name, provider: d.kind == "ProviderNetwork"}
	if err := n.parse(); err != nil {
		return err
	}
	if other := c.networks[d.name]; other != nil {
		return fmt.Errorf("namespace %s has a network of the same name, and Nodus has one switch for both", other.namespace)
	}
	c.networks[d.name] = n
	return nil
}

func (c *converter) convert(d *document) error {
	switch {
	case d.group == group && c.networks[d.name] != nil && d.kind != "NetworkChaining":
		return c.convertNetwork(d, c.networks[d.name])
	case d.group == group:
		d.onlyComments = true
		d.say("%s %s has no counterpart: the pods stay as they are, and no traffic is sent through them", d.kind, d.name)
		return nil
	case d.kind == "NetworkAttachmentDefinition" && c.nads[d.space+"/"+d.name]:
		d.onlyComments = true
		d.say("%s %s called Nodus' plugin; nothing needs it any more", d.kind, d.name)
		return nil
	}
	return c.convertPod(d)
}

// isTrampoline reports whether a NAD only calls Nodus' plugin.
func isTrampoline(node *yaml.Node) bool {
	var nad struct {
		Spec struct {
			Config string `yaml:"config"`
		} `yaml:"spec"`
	}
	var config struct{ Type string }
	return node.Decode(&nad) == nil && json.Unmarshal([]byte(nad.Spec.Config), &config) == nil &&
		config.Type == "ovn4nfvk8s-cni"
}

// nodeOf makes a YAML node of a value.
func nodeOf(v any) (*yaml.Node, error) {
	node := &yaml.Node{}
	err := node.Encode(v)
	return node, err
}

// field returns the value of a key of a mapping; nil: there is none.
func field(node *yaml.Node, key string) *yaml.Node {
	if node == nil {
		return nil
	}
	if node.Kind == yaml.DocumentNode {
		return field(node.Content[0], key)
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// setField sets the text of a key of a mapping. An empty text removes the key.
func setField(node *yaml.Node, key, text string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			if text == "" {
				node.Content = slices.Delete(node.Content, i, i+2)
			} else {
				node.Content[i+1] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.SingleQuotedStyle, Value: text}
			}
			return
		}
	}
	if text != "" {
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.SingleQuotedStyle, Value: text})
	}
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
