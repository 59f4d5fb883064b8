package nad

import (
	"bytes"
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

// requestJSON is a request in the JSON form (multi-net-spec 1.3, section 4.1.2.1).
type requestJSON struct {
	Name           string            `json:"name"`
	Namespace      string            `json:"namespace"`
	Interface      string            `json:"interface"`
	IPs            []string          `json:"ips"`
	MAC            *string           `json:"mac"`
	DefaultRoute   []string          `json:"default-route"`
	PortMappings   []json.RawMessage `json:"portMappings"` // of portMappingJSON
	Bandwidth      json.RawMessage   `json:"bandwidth"`    // bandwidthJSON
	CNIArgs        json.RawMessage   `json:"cni-args"`
	InfinibandGUID *string           `json:"infiniband-guid"`
	IPAMClaim      string            `json:"ipam-claim-reference"`
	DeviceID       *string           `json:"deviceID"`
}

// PortMapping is in the form of CNI's conventions for the capability portMappings.
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// Bandwidth is in the form of CNI's conventions for the capability bandwidth: bits per second, and bits.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

func parseRequest(entry []byte) (Request, error) {
	var raw requestJSON
	if !bytes.HasPrefix(bytes.TrimSpace(entry), []byte("{")) {
		return Request{}, fmt.Errorf("%s, where an object is wanted", clip(string(entry)))
	}
	// Keys with a dot belong to other projects (multi-net-spec 1.3, section 4.1.2.1).
	foreign := func(key string) bool { return strings.Contains(key, ".") || slices.Contains(ignored, key) }
	if err := conf.DecodeObject(entry, &raw, foreign); err != nil {
		return Request{}, err
	}
	s := Request{Namespace: raw.Namespace, Name: raw.Name, Interface: raw.Interface}
	if err := s.checkNames(); err != nil {
		return Request{}, err
	}
	for _, step := range []func(*requestJSON) error{
		s.setIPs, s.setMAC, s.setGUID, s.setDefaultRoute, s.setPortMappings, s.setBandwidth, s.setCNIArgs, s.setDeviceID,
		s.setIPAMClaim,
	} {
		if err := step(&raw); err != nil {
			return Request{}, err
		}
	}
	return s, nil
}

// ignored are keys that the specification does not have, and that many public charts have all the same: the program
// that they were written for ignores them.
var ignored = []string{"gateway", "gateways"}

// IgnoredKey returns a warning about a key of a pod's networks annotation that is ignored although its author expects
// something from it; "": there is none. The annotation must be valid.
func IgnoredKey(annotations map[string]string) string {
	text := annotations[conf.NetworksAnnotation]
	if !strings.Contains(text, `"`+ignored[0]) { // most pods
		return ""
	}
	var entries []map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &entries) != nil {
		return ""
	}
	for i, entry := range entries {
		for _, key := range ignored {
			if given(entry[key]) {
				return fmt.Sprintf("annotation %s: entry %d: the key %q is ignored: default-route is the key that moves the "+
					"pod's default route", conf.NetworksAnnotation, i, key)
			}
		}
	}
	return ""
}

// given reports whether a key has a value. For every key, null means that the key is absent.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// setIPAMClaim sets the IPAMClaim. It refuses ips beside it (multi-net-spec 1.3, section 4.1.2.1.11).
func (s *Request) setIPAMClaim(raw *requestJSON) error {
	switch name := raw.IPAMClaim; {
	case name == "":
	case len(name) > 253 || !dnsName.MatchString(name):
		return fmt.Errorf("ipam-claim-reference: %q cannot be the name of an IPAMClaim", clip(name))
	case len(raw.IPs) > 0:
		return errors.New("ips beside ipam-claim-reference: the IPAMClaim has the addresses; its spec.ipRequests names them")
	}
	s.IPAMClaim = raw.IPAMClaim
	return nil
}

func (s *Request) setIPs(raw *requestJSON) error {
	if raw.IPs != nil && len(raw.IPs) == 0 {
		return errors.New("ips is an empty list, leave it out or name an address")
	}
	if len(raw.IPs) > MaxIPs {
		return fmt.Errorf("ips: %d addresses are more than %d", len(raw.IPs), MaxIPs)
	}
	seen := map[netip.Addr]bool{}
	for _, text := range raw.IPs {
		p, err := parseIP(text)
		if err != nil {
			return fmt.Errorf("ips: %w", err)
		}
		if a := p.Addr(); a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
			return fmt.Errorf("ips: %s is no unicast address of an interface", a)
		}
		if seen[p.Addr()] {
			return fmt.Errorf("ips: %s is named twice", p.Addr())
		}
		seen[p.Addr()] = true
		s.IPs = append(s.IPs, p)
	}
	return nil
}

// parseIP parses an address with or without its prefix length. It refuses zones and IPv4 in IPv6 notation: an address
// must have one spelling.
func parseIP(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
		return p, nil
	}
	a, err := parseAddr(text)
	return netip.PrefixFrom(a, -1), err
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", clip(text))
	}
	return a, nil
}

func (s *Request) setMAC(raw *requestJSON) error {
	if raw.MAC == nil {
		return nil
	}
	mac, err := net.ParseMAC(*raw.MAC)
	if err != nil || len(mac) != 6 {
		return fmt.Errorf("mac: %q is not a MAC address of 6 bytes", clip(*raw.MAC))
	}
	if mac[0]&1 != 0 {
		return fmt.Errorf("mac: %s is a group address, an interface takes a unicast one", mac)
	}
	if bytes.Equal(mac, make([]byte, 6)) {
		return fmt.Errorf("mac: %s is no address of an interface", mac)
	}
	s.MAC = mac
	return nil
}

// setGUID reads the lower 8 bytes of an IP-over-Infiniband hardware address (RFC 4391, section 9.1.1).
func (s *Request) setGUID(raw *requestJSON) error {
	if raw.InfinibandGUID == nil {
		return nil
	}
	guid, err := net.ParseMAC(*raw.InfinibandGUID)
	if err != nil || len(guid) != 8 {
		return fmt.Errorf("infiniband-guid: %q is not a GUID of 8 bytes", clip(*raw.InfinibandGUID))
	}
	if bytes.Equal(guid, make([]byte, 8)) {
		return fmt.Errorf("infiniband-guid: %s is no GUID of an interface", guid)
	}
	s.GUID = guid
	return nil
}

func (s *Request) setDefaultRoute(raw *requestJSON) error {
	if raw.DefaultRoute == nil {
		return nil
	}
	if len(raw.DefaultRoute) > MaxIPs {
		return fmt.Errorf("default-route: %d gateways are more than %d", len(raw.DefaultRoute), MaxIPs)
	}
	s.DefaultRoute = []netip.Addr{}
	four := map[bool]netip.Addr{}
	for _, text := range raw.DefaultRoute {
		a, err := parseAddr(text)
		if err != nil {
			return fmt.Errorf("default-route: %w", err)
		}
		if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
			return fmt.Errorf("default-route: %s is no address of a gateway", a)
		}
		if other, given := four[a.Is4()]; given {
			return fmt.Errorf("default-route: %s and %s are of one family, name one gateway for each", other, a)
		}
		four[a.Is4()] = a
		s.DefaultRoute = append(s.DefaultRoute, a)
	}
	return nil
}

// portMappingJSON is one entry of the list portMappings (multi-net-spec 1.3, section 4.1.2.1.7).
type portMappingJSON struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// maxPortMappings bounds the port mappings of one attachment.
const maxPortMappings = 256

func (s *Request) setPortMappings(raw *requestJSON) error {
	if raw.PortMappings != nil && len(raw.PortMappings) == 0 {
		return errors.New("portMappings is an empty list, leave it out or map a port")
	}
	if len(raw.PortMappings) > maxPortMappings {
		return fmt.Errorf("portMappings: %d are more than %d", len(raw.PortMappings), maxPortMappings)
	}
	type port struct {
		number   int
		protocol string
	}
	seen := map[port]bool{}
	for i, text := range raw.PortMappings {
		var m portMappingJSON
		if err := conf.DecodeObject(text, &m, nil); err != nil {
			return fmt.Errorf("portMappings[%d]: %w", i, err)
		}
		for _, p := range []struct {
			key   string
			value int
		}{{"hostPort", m.HostPort}, {"containerPort", m.ContainerPort}} {
			if p.value < 1 || p.value > 65535 {
				return fmt.Errorf("portMappings[%d].%s: %d is not between 1 and 65535", i, p.key, p.value)
			}
		}
		protocol := strings.ToLower(m.Protocol)
		switch protocol {
		case "":
			protocol = "tcp"
		case "tcp", "udp", "sctp":
		default:
			return fmt.Errorf("portMappings[%d].protocol: %q is none of tcp, udp and sctp", i, clip(m.Protocol))
		}
		if seen[port{m.HostPort, protocol}] {
			return fmt.Errorf("portMappings[%d]: %s port %d of the host is mapped twice", i, protocol, m.HostPort)
		}
		seen[port{m.HostPort, protocol}] = true
		s.PortMappings = append(s.PortMappings, PortMapping{m.HostPort, m.ContainerPort, protocol})
	}
	return nil
}

// bandwidthJSON is the value of bandwidth (multi-net-spec 1.3, section 4.1.2.1.8).
type bandwidthJSON struct {
	IngressRate  *int64 `json:"ingressRate"`
	IngressBurst *int64 `json:"ingressBurst"`
	EgressRate   *int64 `json:"egressRate"`
	EgressBurst  *int64 `json:"egressBurst"`
}

func (s *Request) setBandwidth(raw *requestJSON) error {
	if !given(raw.Bandwidth) {
		return nil
	}
	var b bandwidthJSON
	if err := conf.DecodeObject(raw.Bandwidth, &b, nil); err != nil {
		return fmt.Errorf("bandwidth: %w", err)
	}
	s.Bandwidth = &Bandwidth{}
	for _, v := range []struct {
		key    string
		have   *int64
		target *uint64
	}{
		{"ingressRate", b.IngressRate, &s.Bandwidth.IngressRate}, {"ingressBurst", b.IngressBurst, &s.Bandwidth.IngressBurst},
		{"egressRate", b.EgressRate, &s.Bandwidth.EgressRate}, {"egressBurst", b.EgressBurst, &s.Bandwidth.EgressBurst},
	} {
		if v.have == nil {
			continue
		}
		if *v.have <= 0 {
			return fmt.Errorf("bandwidth.%s: %d is not more than 0", v.key, *v.have)
		}
		*v.target = uint64(*v.have)
	}
	switch {
	case *s.Bandwidth == Bandwidth{}:
		return errors.New("bandwidth is empty, leave it out or limit something")
	case b.IngressBurst != nil && b.IngressRate == nil:
		return errors.New("bandwidth.ingressBurst needs ingressRate beside it")
	case b.EgressBurst != nil && b.EgressRate == nil:
		return errors.New("bandwidth.egressBurst needs egressRate beside it")
	}
	s.Bandwidth.IngressBurst = burstOr(s.Bandwidth.IngressBurst, s.Bandwidth.IngressRate)
	s.Bandwidth.EgressBurst = burstOr(s.Bandwidth.EgressBurst, s.Bandwidth.EgressRate)
	return nil
}

// maxBurst is the limit of the reference plugin: its token bucket counts bytes in 32 bits.
const maxBurst = 1<<32 - 1

// burstOr returns the burst of a rate. The default is the amount of one second: plugins refuse a rate without a burst.
func burstOr(burst, rate uint64) uint64 {
	if burst != 0 {
		return burst
	}
	return min(rate, maxBurst)
}

// deviceID matches the name of a device: printable, without blanks.
var deviceID = regexp.MustCompile(`^[!-~]{1,253}$`)

func (s *Request) setDeviceID(raw *requestJSON) error {
	if raw.DeviceID == nil {
		return nil
	}
	if !deviceID.MatchString(*raw.DeviceID) {
		return fmt.Errorf("deviceID: %q is no name of a device", clip(*raw.DeviceID))
	}
	s.DeviceID = *raw.DeviceID
	return nil
}

func (s *Request) setCNIArgs(raw *requestJSON) error {
	if !given(raw.CNIArgs) {
		return nil
	}
	if err := json.Unmarshal(raw.CNIArgs, &s.CNIArgs); err != nil {
		return fmt.Errorf("cni-args: %s, where an object is wanted", clip(string(raw.CNIArgs)))
	}
	var ours struct {
		Profiles json.RawMessage `json:"securityProfiles"`
	}
	err := conf.DecodeObject(raw.CNIArgs, &ours, func(key string) bool { return key != profilesKey })
	if err == nil {
		s.SecurityProfiles, err = netmodel.ParseProfileNames(ours.Profiles)
	}
	if err == nil {
		err = netmodel.CheckProfiles(s.SecurityProfiles)
	}
	if err != nil {
		return fmt.Errorf("cni-args: %w", err)
	}
	return nil
}

// profilesKey is the key of cni-args that OVN networks know. It is not a key beside cni-args: keys without a dot belong
// to the specification there, and programs that write the annotation again omit keys that they do not know. A pod
// without the key would be unprotected.
const profilesKey = "securityProfiles"
