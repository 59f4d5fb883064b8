package uplinks

import "time"

// Wait puts the clock of the kind forward.
func (k *Kind) Wait(d time.Duration) {
	now := k.now
	k.now = func() time.Time { return now().Add(d) }
}
