package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// SecurityProfiles are the section securityProfiles of the controller's --config, by the profile's name. Nothing is
// granted by default.
type SecurityProfiles map[string]*SecurityProfile

// SecurityProfile is a port group that the operator has made in NB, and the namespaces whose pods may use it.
type SecurityProfile struct {
	PortGroup string `json:"portGroup"`
	// Namespaces has names of namespaces. A "*" at the end of a name stands for any text, also for none.
	Namespaces []string `json:"namespaces"`
}

// MaxProfiles is the bound on the profiles of one network, and on those that one attachment request names.
const MaxProfiles = 16

// DHCPServersGroup is the port group of the ports that may answer as DHCP servers. The controller makes it if a profile
// names it.
const DHCPServersGroup = "ovnmultinet_dhcp_servers"

// profileName matches the names of profiles and of port groups. OVN's own names have no dash, but it accepts one.
var profileName = regexp.MustCompile(`^[a-zA-Z_.][a-zA-Z0-9_.-]{0,62}$`)

// policyGroup matches the names of the port groups that the controller makes for network policies.
var policyGroup = regexp.MustCompile(`^pg_[0-9a-f]{32}$`)

const profileForm = "letters, digits, '_', '.' and '-', the first one no digit and no '-', at most 63"

// ParseSecurityProfiles parses the section securityProfiles of the controller's --config, from JSON. Every error names
// the profile and the key.
func ParseSecurityProfiles(config []byte) (SecurityProfiles, error) {
	var c controllerJSON
	if err := conf.DecodeObject(config, &c, nil); err != nil {
		return nil, err
	}
	profiles := SecurityProfiles{}
	for _, name := range sortedKeys(c.SecurityProfiles) {
		p, err := parseSecurityProfile(name, c.SecurityProfiles[name])
		if err != nil {
			return nil, fmt.Errorf("securityProfiles: %.64q: %w", name, err)
		}
		profiles[name] = p
	}
	return profiles, nil
}

func parseSecurityProfile(name string, text []byte) (*SecurityProfile, error) {
	p := &SecurityProfile{}
	if err := conf.DecodeObject(text, p, nil); err != nil {
		return nil, err
	}
	if p.PortGroup == "" {
		p.PortGroup = name
	}
	switch {
	case !profileName.MatchString(name):
		return nil, errors.New("the name of a profile has " + profileForm)
	case !profileName.MatchString(p.PortGroup):
		return nil, fmt.Errorf("portGroup: %.64q is no name of a port group: %s", p.PortGroup, profileForm)
	case policyGroup.MatchString(p.PortGroup):
		return nil, fmt.Errorf("portGroup: %s is the name of a group of network policies; choose another", p.PortGroup)
	case len(p.Namespaces) == 0:
		return nil, errors.New(`namespaces is missing: a list like [shop, "team-*"]`)
	}
	for _, namespace := range p.Namespaces {
		begin, _ := strings.CutSuffix(namespace, "*")
		// A text that a namespace's name can begin with becomes such a name with one more letter.
		if !label.MatchString(namespace) && (begin == namespace || !label.MatchString(begin+"x")) {
			const form = `namespaces: %.64q is no namespace's name, and no beginning of one with "*" after it`
			return nil, fmt.Errorf(form, namespace)
		}
	}
	return p, nil
}

// Encode returns the profile as a text, as NB has it for the agents. Equal profiles have equal texts.
func (p *SecurityProfile) Encode() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("netmodel: " + err.Error()) // impossible: strings
	}
	return string(text)
}

// DecodeSecurityProfile reads a text of Encode. Unknown keys are refused: they may restrict the profile.
func DecodeSecurityProfile(name, text string) (*SecurityProfile, error) {
	return parseSecurityProfile(name, []byte(text))
}

// Allows reports whether pods of a namespace may have the profile.
func (p *SecurityProfile) Allows(namespace string) bool {
	return slices.ContainsFunc(p.Namespaces, func(allowed string) bool {
		begin, open := strings.CutSuffix(allowed, "*")
		return allowed == namespace || open && strings.HasPrefix(namespace, begin)
	})
}

// ParseProfileNames parses a list of names of security profiles, as a tenant writes it. The names are sorted.
func ParseProfileNames(text json.RawMessage) ([]string, error) {
	var names []string
	if len(text) > 0 && json.Unmarshal(text, &names) != nil {
		return nil, errors.New(`securityProfiles is no list of names like ["web-only"]`)
	}
	for _, name := range names {
		if !profileName.MatchString(name) {
			return nil, fmt.Errorf("securityProfiles: %.64q is no name of a profile: %s", name, profileForm)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// CheckProfiles refuses more names than a tenant may write in one place.
func CheckProfiles(names []string) error {
	if len(names) > MaxProfiles {
		return fmt.Errorf("securityProfiles: %d are more than %d", len(names), MaxProfiles)
	}
	return nil
}
