package netmodel

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// sharedName is the CNI specification's form of a network's name (section "Configuration format").
var sharedName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,127}$`)

func checkShared(name string) error {
	if !sharedName.MatchString(name) {
		return fmt.Errorf("name: %.64q is no network's name: letters, digits, '_', '.' and '-'", name)
	}
	return nil
}

// overlayJSON is the spec.config of ovn-kubernetes' NADs. Their generators write every key, so a zero or empty value
// means that the key is absent. The keys that configure ovn-kubernetes' own plugin have no effect.
type overlayJSON struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Type       string `json:"type"`

	Topology       string `json:"topology"`
	Subnets        string `json:"subnets"`
	ExcludeSubnets string `json:"excludeSubnets"`
	MTU            int    `json:"mtu"`
	NetAttachDef   string `json:"netAttachDefName"`
	Role           string `json:"role"`

	PhysicalNetwork    string          `json:"physicalNetworkName"`
	VLANID             int             `json:"vlanID"`
	AllowPersistentIPs json.RawMessage `json:"allowPersistentIPs"`

	JoinSubnet       json.RawMessage `json:"joinSubnet"`
	JoinSubnets      json.RawMessage `json:"joinSubnets"` // as NADs of a UserDefinedNetwork have it
	TransitSubnet    json.RawMessage `json:"transitSubnet"`
	ReservedSubnets  json.RawMessage `json:"reservedSubnets"`
	Infrastructure   json.RawMessage `json:"infrastructureSubnets"`
	DefaultGatewayIP json.RawMessage `json:"defaultGatewayIPs"`
	Transport        json.RawMessage `json:"transport"`
	OutboundSNAT     json.RawMessage `json:"outboundSNAT"`
	EVPN             json.RawMessage `json:"evpn"`
	Uplink           json.RawMessage `json:"uplink"`

	Capabilities  json.RawMessage `json:"capabilities"`
	IPAM          json.RawMessage `json:"ipam"`
	DNS           json.RawMessage `json:"dns"`
	DeviceID      json.RawMessage `json:"deviceID"`
	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	PrevResult    json.RawMessage `json:"prevResult"`

	LogFile       json.RawMessage `json:"logFile"`
	LogLevel      json.RawMessage `json:"logLevel"`
	LogMaxSize    json.RawMessage `json:"logfile-maxsize"`
	LogMaxBackups json.RawMessage `json:"logfile-maxbackups"`
	LogMaxAge     json.RawMessage `json:"logfile-maxage"`
	Timeout       json.RawMessage `json:"cniRequestTimeout"`
}

// ownKey returns a key of the configuration that only conf.NetworkType has; "" if there is none.
func ownKey(config []byte) string {
	var keys map[string]json.RawMessage
	if json.Unmarshal(config, &keys) != nil {
		return ""
	}
	for _, key := range []string{
		"gateway", "portSecurity", "router", "routerGuests", "routes", "securityProfiles", "snat",
	} {
		if keys[key] != nil {
			return key
		}
	}
	return ""
}

// decodeOverlay reads the spec.config of an ovn-kubernetes NAD.
func (raw *networkJSON) decodeOverlay(config []byte) error {
	var o overlayJSON
	if key := ownKey(config); key != "" {
		return fmt.Errorf("key %q is of type %s, a network of type %s has none", key, conf.NetworkType, conf.OverlayType)
	}
	if err := conf.DecodeObject(config, &o, nil); err != nil {
		return err
	}
	if err := checkShared(o.Name); err != nil {
		return err
	}
	if err := checkRole(o.Role); err != nil { // before the keys of primary networks
		return err
	}
	if err := refuse([]keyValue{
		{"joinSubnet", o.JoinSubnet}, {"joinSubnets", o.JoinSubnets}, {"transitSubnet", o.TransitSubnet},
		{"reservedSubnets", o.ReservedSubnets}, {"infrastructureSubnets", o.Infrastructure},
		{"defaultGatewayIPs", o.DefaultGatewayIP}, {"transport", o.Transport}, {"outboundSNAT", o.OutboundSNAT},
		{"evpn", o.EVPN}, {"uplink", o.Uplink}, {"capabilities", o.Capabilities}, {"ipam", o.IPAM}, {"dns", o.DNS},
		{"deviceID", o.DeviceID}, {"runtimeConfig", o.RuntimeConfig}, {"prevResult", o.PrevResult},
	}); err != nil {
		return err
	}
	*raw = networkJSON{
		Name: o.Name, Type: o.Type, Topology: o.Topology, Subnets: o.Subnets, ExcludeSubnets: o.ExcludeSubnets,
		MTU: unlessZero(o.MTU), NetAttachDef: o.NetAttachDef, PhysicalNetwork: o.PhysicalNetwork,
		VLANID: unlessZero(o.VLANID), AllowPersistentIPs: o.AllowPersistentIPs,
	}
	return nil
}

// unlessZero returns nil for zero, which means that the key is absent.
func unlessZero(number int) *int {
	if number == 0 {
		return nil
	}
	return &number
}
