package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"

	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// MaxRanges is how many ranges a network may have.
const MaxRanges = 64

// rangeJSON is one range of the key ranges.
type rangeJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (n *Network) setRanges(list []json.RawMessage) error {
	for i, text := range list {
		var r rangeJSON
		if err := conf.DecodeObject(text, &r, nil); err != nil {
			return fmt.Errorf("ranges[%d]: %w", i, err)
		}
		from, err := parseAddr(r.From)
		if err != nil {
			return fmt.Errorf("ranges[%d].from: %w", i, err)
		}
		to, err := parseAddr(r.To)
		if err != nil {
			return fmt.Errorf("ranges[%d].to: %w", i, err)
		}
		if at := n.SubnetOf(from); at < 0 || at != n.SubnetOf(to) {
			return fmt.Errorf("ranges[%d]: %s and %s are not in one of the subnets", i, from, to)
		}
		if to.Less(from) {
			return fmt.Errorf("ranges[%d]: %s is above %s", i, from, to)
		}
		n.Ranges = append(n.Ranges, Span{from, to})
	}
	slices.SortFunc(n.Ranges, func(a, b Span) int { return a.First.Compare(b.First) })
	for i := 1; i < len(n.Ranges); i++ {
		if before, r := n.Ranges[i-1], n.Ranges[i]; before.overlaps(r) {
			return fmt.Errorf("ranges: %s and %s overlap", before, r)
		}
	}
	if n.Topology == Layer3 && len(n.Ranges) > 0 {
		return errors.New("ranges: leave it out, on a layer3 network each node gives the addresses of its node subnet")
	}
	return nil
}

// beyondRanges are the parts of the i-th subnet outside of its ranges; none if it has no ranges.
func (n *Network) beyondRanges(i int) (parts []Span) {
	next := n.Subnets[i].Addr()
	for _, r := range n.Ranges {
		if !n.Subnets[i].Contains(r.First) {
			continue
		}
		if next.Less(r.First) {
			parts = append(parts, Span{next, r.First.Prev()})
		}
		next = r.Last.Next()
	}
	if last := LastAddr(n.Subnets[i]); next != n.Subnets[i].Addr() && next.IsValid() && !last.Less(next) {
		parts = append(parts, Span{next, last})
	}
	return parts
}

// boundKey is the key because of which a subnet has no address for pods.
func (n *Network) boundKey() string {
	switch {
	case len(n.Ranges) > 0:
		return "ranges"
	case len(n.Exclude) == 0 && len(n.VirtualAddresses) > 0:
		return "virtualAddresses"
	}
	return "excludeSubnets"
}

// rangesJSON is the canonical form of ranges.
func (n *Network) rangesJSON() any {
	var list []rangeJSON
	for _, r := range n.Ranges {
		list = append(list, rangeJSON{r.First.String(), r.Last.String()})
	}
	return list
}

// rangeWords writes the ranges for a reader.
func (n *Network) rangeWords() string { return strings.ReplaceAll(joinWords(n.Ranges, ","), ",", ", ") }
