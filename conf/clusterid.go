package conf

import (
	"fmt"
	"regexp"
	"sync"
)

// clusterID matches a cluster identity. Every UUID matches. It is compiled when it is needed: the plugin, which starts
// for every pod, does not need it.
var clusterID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}$`)
})

// CheckClusterID refuses a text that cannot be a cluster identity.
func CheckClusterID(text string) error {
	if !clusterID().MatchString(text) {
		const form = "%.80q is no identity of a cluster: give a UUID, or up to 63 letters, digits, '_', '.' and '-'"
		return fmt.Errorf(form, text)
	}
	return nil
}

// checkClusterFlag refuses the value of a flag that is neither empty nor a cluster identity.
func checkClusterFlag(flag, value string) error {
	if value == "" {
		return nil
	}
	if err := CheckClusterID(value); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}
