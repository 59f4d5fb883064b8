package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// The annotations of pods that Nodus reads.
const (
	nfnAnnotation    = group + "/nfn-network"
	oldAnnotation    = "ovnNetwork"
	routesAnnotation = "ovnNetworkRoutes"
)

// request is one interface in such an annotation. Nodus writes booleans as texts.
type request struct {
	Name           string `json:"name"`
	Interface      string `json:"interface"`
	NetType        string `json:"netType"`
	DefaultGateway any    `json:"defaultGateway"`
	IPAddress      string `json:"ipAddress"`
	MACAddress     string `json:"macAddress"`
}

// attachment is an interface in the annotation of the Network Plumbing Working Group. Its keys are in the order of the
// specification.
type attachment struct {
	Name         string    `json:"name"`
	Namespace    string    `json:"namespace,omitempty"`
	Interface    string    `json:"interface,omitempty"`
	IPs          []string  `json:"ips,omitempty"`
	MAC          string    `json:"mac,omitempty"`
	DefaultRoute *[]string `json:"default-route,omitempty"`
}

// convertPod converts the annotations of a pod, or of each pod template in an object.
func (c *converter) convertPod(d *document) error {
	paths := [][]string{{"metadata"}, {"spec", "template", "metadata"},
		{"spec", "jobTemplate", "spec", "template", "metadata"}}
	for _, path := range paths {
		node := d.node
		for _, key := range path {
			node = field(node, key)
		}
		if annotations := field(node, "annotations"); annotations != nil && annotations.Kind == yaml.MappingNode {
			if err := c.convertAnnotations(d, annotations); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *converter) convertAnnotations(d *document, annotations *yaml.Node) error {
	text := func(key string) string {
		if node := field(annotations, key); node != nil {
			return node.Value
		}
		return ""
	}
	requests, err := readRequests(text(nfnAnnotation), text(oldAnnotation))
	if err != nil {
		return err
	}
	if len(requests) == 0 {
		return nil
	}
	attachments, err := c.keptAttachments(d, text(conf.NetworksAnnotation))
	if err != nil {
		return err
	}
	for i := range requests {
		attachments = append(attachments, c.attachmentOf(d, &requests[i]))
	}
	if err := c.convertRoutes(d, annotations, text(routesAnnotation), attachments); err != nil {
		return err
	}
	networks, err := json.Marshal(attachments)
	if err != nil {
		return err
	}
	setField(annotations, nfnAnnotation, "")
	setField(annotations, oldAnnotation, "")
	setField(annotations, routesAnnotation, "")
	setField(annotations, conf.NetworksAnnotation, string(networks))
	return nil
}

// readRequests reads the annotation of Nodus, or the older one.
func readRequests(nfn, old string) (requests []request, err error) {
	if nfn != "" {
		var annotation struct {
			Type      string    `json:"type"`
			Interface []request `json:"interface"`
		}
		if err := json.Unmarshal([]byte(nfn), &annotation); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", nfnAnnotation, err)
		}
		if annotation.Type != "ovn4nfv" {
			return nil, fmt.Errorf("annotation %s: type is %q, not ovn4nfv", nfnAnnotation, annotation.Type)
		}
		requests = annotation.Interface
	}
	if old != "" {
		var more []request
		if err := json.Unmarshal([]byte(old), &more); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", oldAnnotation, err)
		}
		requests = append(requests, more...)
	}
	return requests, nil
}

// keptAttachments are the attachments of the present annotation, without the one that called Nodus.
func (c *converter) keptAttachments(d *document, text string) ([]any, error) {
	if text == "" {
		return nil, nil
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		if strings.HasPrefix(strings.TrimSpace(text), "[") {
			return nil, fmt.Errorf("annotation %s: %w", conf.NetworksAnnotation, err)
		}
		return nil, errors.New("annotation " + conf.NetworksAnnotation + " is a list of names: write it as JSON")
	}
	var kept []any
	for _, one := range list {
		name, _ := one["name"].(string)
		namespace, _ := one["namespace"].(string)
		calls, known := c.nads[cmp.Or(namespace, d.space)+"/"+name]
		// Charts of ONAP have such attachments without the NAD, whose name begins so.
		if calls || !known && c.networks[name] == nil && strings.HasPrefix(name, "ovn") {
			d.say("annotation %s: the attachment request %s called Nodus' plugin, and is left out",
				conf.NetworksAnnotation, name)
			continue
		}
		kept = append(kept, one)
	}
	return kept, nil
}

func (c *converter) attachmentOf(d *document, r *request) *attachment {
	e := &attachment{Name: r.Name, Interface: r.Interface, MAC: r.MACAddress}
	n := c.networks[r.Name]
	switch {
	case n == nil:
		d.say("network %s is not in these files: it is looked for in namespace %s", r.Name, d.space)
	case n.namespace != d.space:
		e.Namespace = n.namespace
	}
	if r.IPAddress != "" {
		address, _, _ := strings.Cut(r.IPAddress, "/")
		e.IPs = []string{address}
	}
	if isTrue(r.DefaultGateway) {
		e.DefaultRoute = &[]string{}
		d.say("interface %s has the pod's default route: the router of network %s needs a gateway (object Router) for a way "+
			"out", r.Interface, r.Name)
	}
	return e
}

func isTrue(v any) bool { return v == true || v == "true" }

// routeRequest is a route of a pod in Nodus' annotation.
type routeRequest struct {
	Dst string `json:"dst"`
	GW  string `json:"gw"`
	Dev string `json:"dev"`
}

// convertRoutes converts the routes of a pod. A default route belongs to the interface that it names.
func (c *converter) convertRoutes(d *document, annotations *yaml.Node, text string, attachments []any) error {
	if text == "" {
		return nil
	}
	var routes []routeRequest
	if err := json.Unmarshal([]byte(text), &routes); err != nil {
		return fmt.Errorf("annotation %s: %w", routesAnnotation, err)
	}
	var kept []route
	for _, r := range routes {
		if r.Dst != "0.0.0.0/0" && r.Dst != "::/0" {
			kept = append(kept, route{r.Dst, r.GW})
			continue
		}
		at := slices.IndexFunc(attachments, func(e any) bool {
			of, ok := e.(*attachment)
			return ok && of.Interface == r.Dev
		})
		if at < 0 {
			d.say("annotation %s: the default route by %s is left out, as no interface here has this name",
				routesAnnotation, r.Dev)
			continue
		}
		attachments[at].(*attachment).DefaultRoute = &[]string{r.GW}
	}
	if len(kept) > 0 {
		value, err := json.Marshal(kept)
		if err != nil {
			return err
		}
		setField(annotations, conf.RoutesAnnotation, string(value))
	}
	return nil
}
