package service

import (
	"net/netip"
	"slices"
	"time"
)

// State is the value of StateAnnotation.
type State struct {
	Ready bool `json:"ready"`
	// Reason says why the Service is not ready, or what is limited.
	Reason string `json:"reason,omitempty"`
	// Network is the ID of the network that serves the Service.
	Network string `json:"network,omitempty"`
	// Addresses are the virtual addresses; none: the Service is headless.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Outside are the addresses by which outside hosts reach the Service.
	Outside []netip.Addr `json:"outsideAddresses,omitempty"`
	Since   time.Time    `json:"since"`
}

// Equal reports whether two states say the same. Their times may differ.
func (s *State) Equal(other *State) bool {
	return s.Ready == other.Ready && s.Reason == other.Reason && s.Network == other.Network &&
		slices.Equal(s.Addresses, other.Addresses) && slices.Equal(s.Outside, other.Outside)
}
