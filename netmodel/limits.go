package netmodel

import (
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// ParseLimits parses the section limits of the controller's --config, from JSON: what the objects of a namespace may
// need together.
func ParseLimits(config []byte) (cost.Limits, error) {
	var c controllerJSON
	if err := conf.DecodeObject(config, &c, nil); err != nil {
		return nil, err
	}
	return cost.ParseLimits(c.Limits, label.MatchString)
}
