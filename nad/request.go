package nad

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Bounds on what a tenant may request. They bound the work, and real pods are far below them.
const (
	MaxNetworks = 64
	MaxIPs      = 16
)

// Request is one attachment request of a pod, checked. The specification calls it a `network selection element`.
type Request struct {
	Namespace string // of the NAD
	Name      string // of the NAD
	Interface string
	IPs       []netip.Prefix // fixed addresses; a prefix length of -1 was not given
	MAC       net.HardwareAddr
	// IPAMClaim is the IPAMClaim, of the pod's namespace, whose addresses and MAC the attachment has; "": none. Other
	// plugins than ours do not get it.
	IPAMClaim string
	// DefaultRoute are the gateways that the pod's default routes go to; nil: not asked for, empty: the attachment
	// has the default route that its network gives it.
	DefaultRoute []netip.Addr
	// What only delegates serve.
	PortMappings []PortMapping
	Bandwidth    *Bandwidth
	GUID         net.HardwareAddr // Infiniband's, 8 bytes
	CNIArgs      map[string]json.RawMessage
	// DeviceID is the requested device, one of the pod's devices; "": any.
	DeviceID string
	// SecurityProfiles are the names of security profiles in CNIArgs, sorted. Only ports of OVN networks have such.
	SecurityProfiles []string
}

// String names the request's NAD in errors, as in "shop/blue".
func (s *Request) String() string { return s.Namespace + "/" + s.Name }

// ParseRequests parses a pod's networks annotation into requests, in their order. podNamespace is the namespace of NADs
// that are named without one. primary is the name of the pod's first interface. Every error has code 7.
func ParseRequests(annotations map[string]string, podNamespace, primary string) ([]Request, error) {
	return ParseRequestsOf(annotations, podNamespace, primary, nil)
}

// ParseRequestsOf is ParseRequests for a pod that runs. The requests of the attachments that it has keep the names of
// their interfaces, whatever their positions are now.
func ParseRequestsOf(
	annotations map[string]string, podNamespace, primary string, has []Present,
) ([]Request, error) {
	if _, given := annotations[conf.DefaultNetworkAnnotation]; given {
		return nil, conf.Errorf(conf.CodeInvalidConfig,
			"the first interface stays with the node's primary CNI plugin; remove the annotation",
			"annotation %s is not supported", conf.DefaultNetworkAnnotation)
	}
	for key := range annotations {
		if strings.HasPrefix(key, conf.AnnotationPrefix) && key != conf.RoutesAnnotation &&
			key != conf.OutsideAnnotation && key != conf.RepairAnnotation {
			return nil, conf.Errorf(conf.CodeInvalidConfig, "remove the annotation",
				"annotation %s is not known", conf.OneLine(key, maxKey))
		}
	}
	if _, err := conf.Repair(annotations); err != nil {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation",
			"annotation %s: %w", conf.RepairAnnotation, err)
	}
	text, given := annotations[conf.NetworksAnnotation]
	if !given || strings.TrimSpace(text) == "" {
		for _, key := range []string{conf.RoutesAnnotation, conf.OutsideAnnotation} {
			if _, given := annotations[key]; given {
				return nil, conf.Errorf(conf.CodeInvalidConfig,
					"name its networks in "+conf.NetworksAnnotation+", or remove the annotation",
					"annotation %s: the pod has no networks", key)
			}
		}
		return nil, nil
	}
	requests, err := parse(text, podNamespace)
	if err == nil {
		keepNames(requests, has)
		err = nameInterfaces(requests, primary)
	}
	if err != nil {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation",
			"annotation %s: %w", conf.NetworksAnnotation, err)
	}
	if err := checkOutside(annotations, requests); err != nil {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation", "%w", err)
	}
	return requests, nil
}

// checkOutside refuses an invalid conf.OutsideAnnotation. The controller serves it.
func checkOutside(annotations map[string]string, requests []Request) error {
	text, given := annotations[conf.OutsideAnnotation]
	if !given {
		return nil
	}
	wanted, err := netmodel.ParseOutside(text)
	for _, one := range wanted {
		if !slices.ContainsFunc(requests, func(r Request) bool { return r.Interface == one.Interface }) {
			return fmt.Errorf("annotation %s: the pod has no interface %.64q; name one of its networks' interfaces",
				conf.OutsideAnnotation, one.Interface)
		}
	}
	return err
}

func parse(text, podNamespace string) ([]Request, error) {
	if err := conf.CheckAnnotation(text); err != nil {
		return nil, err
	}
	var requests []Request
	var err error
	text = strings.TrimSpace(text)
	// multi-net-spec 1.3, section 4.1: a value that begins like JSON is JSON, every other value has the short form.
	if strings.ContainsAny(text[:1], "[{\"") || text == "null" {
		requests, err = parseJSON([]byte(text))
	} else {
		requests, err = parseShort(text)
	}
	for i := range requests {
		if requests[i].Namespace == "" {
			requests[i].Namespace = podNamespace
		}
	}
	return requests, err
}

func tooMany(n int) error {
	if n > MaxNetworks {
		return fmt.Errorf("%d networks are more than %d", n, MaxNetworks)
	}
	return nil
}

// parseShort reads "[namespace/]name[@interface],…" (multi-net-spec 1.3, section 4.1.1).
func parseShort(text string) ([]Request, error) {
	words := strings.Split(text, ",")
	if err := tooMany(len(words)); err != nil {
		return nil, err
	}
	requests := make([]Request, 0, len(words))
	for i, word := range words {
		s, err := parseShortRequest(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		requests = append(requests, s)
	}
	return requests, nil
}

func parseShortRequest(word string) (Request, error) {
	if word == "" {
		return Request{}, errors.New("it is empty")
	}
	rest, ifName, named := strings.Cut(word, "@")
	namespace, name, qualified := strings.Cut(rest, "/")
	if !qualified {
		namespace, name = "", rest
	}
	wrong := ""
	switch {
	case strings.Contains(ifName, "@"):
		wrong = "has @ twice"
	case strings.Contains(name, "/"):
		wrong = "has / twice"
	case named && ifName == "":
		wrong = "has no interface name after @"
	case qualified && namespace == "":
		wrong = "has no namespace before /"
	case qualified && name == "":
		wrong = "has no network after /"
	case name == "":
		wrong = "has no network before @"
	}
	if wrong != "" {
		return Request{}, fmt.Errorf("%q %s, write [namespace/]network[@interface]", clip(word), wrong)
	}
	s := Request{Namespace: namespace, Name: name, Interface: ifName}
	return s, s.checkNames()
}

func parseJSON(text []byte) ([]Request, error) {
	var entries []json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
			return nil, fmt.Errorf("not valid JSON: %w", err)
		}
		return nil, errors.New("the JSON form is a list of objects, like [{\"name\":\"blue\"}]")
	}
	if entries == nil {
		return nil, errors.New("null, where a list of networks is wanted")
	}
	if err := tooMany(len(entries)); err != nil {
		return nil, err
	}
	requests := make([]Request, 0, len(entries))
	for i, entry := range entries {
		s, err := parseRequest(entry)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		requests = append(requests, s)
	}
	return requests, nil
}

// dnsName matches the name of a NAD (DNS subdomain, RFC 1123) and of a namespace (label) in Kubernetes.
var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func (s *Request) checkNames() error {
	if s.Name == "" {
		return errors.New("\"name\" is missing")
	}
	if len(s.Name) > 253 || !dnsName.MatchString(s.Name) {
		return fmt.Errorf("%q cannot be the name of a NetworkAttachmentDefinition", clip(s.Name))
	}
	label := len(s.Namespace) <= 63 && dnsName.MatchString(s.Namespace) && !strings.Contains(s.Namespace, ".")
	if s.Namespace != "" && !label {
		return fmt.Errorf("%q cannot be the name of a namespace", clip(s.Namespace))
	}
	return nil
}

// defaultName is the name of the interface of a request that gives none, by its index.
func defaultName(i int) string { return fmt.Sprintf("net%d", i+1) }

// nameInterfaces sets the default names net1, net2, … by position, and refuses a name that occurs twice.
func nameInterfaces(requests []Request, primary string) error {
	owner := map[string]int{}
	for i := range requests {
		s := &requests[i]
		if s.Interface == "" {
			s.Interface = defaultName(i)
		}
		if err := conf.CheckInterfaceName(s.Interface); err != nil {
			return fmt.Errorf("entry %d (%s): %w", i, s, err)
		}
		if strings.Contains(s.Interface, "@") { // ip(8) shows an interface with its peer as name@peer
			return fmt.Errorf("entry %d (%s): interface name %q has an @, write a name without it", i, s, s.Interface)
		}
		if s.Interface == primary || s.Interface == "lo" {
			return fmt.Errorf("entry %d (%s): interface %q is taken, the pod has it already", i, s, s.Interface)
		}
		if first, taken := owner[s.Interface]; taken {
			return fmt.Errorf("entry %d (%s): interface %q is asked for by entry %d (%s) too",
				i, s, s.Interface, first, &requests[first])
		}
		owner[s.Interface] = i
	}
	return nil
}

// maxKey is longer than the longest key of an annotation in Kubernetes.
const maxKey = 320

// clip shortens a tenant's text for an error.
func clip(s string) string {
	if len(s) > conf.MaxName {
		return strings.ToValidUTF8(s[:conf.MaxName], "") + "…"
	}
	return s
}
