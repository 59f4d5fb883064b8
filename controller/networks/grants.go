package networks

import (
	"context"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// withdrawUngranted withdraws the NADs of a localnet network that have no grant any more. The present ports stay, and
// no new port is leased.
func (k *Kind) withdrawUngranted(ctx context.Context, id string, s *ovnnet.Stored) error {
	if s.Config == nil {
		return nil
	}
	granted := func(nad string) bool {
		namespace, _, _ := strings.Cut(nad, "/")
		return k.Physical().Check(namespace, s.Config) == nil
	}
	lost := slices.DeleteFunc(slices.Clone(s.NADs), granted)
	if len(lost) == 0 {
		return nil
	}
	if err := k.Networks.Withdraw(ctx, id, lost); err != nil {
		return err
	}
	k.Log.Info("network takes no new ports, its physical network is not granted any more",
		"network", id, "nads", lost)
	s.NADs = slices.DeleteFunc(s.NADs, func(nad string) bool { return !granted(nad) })
	return nil
}
