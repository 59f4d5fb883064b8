package netmodel

import (
	"strings"
	"testing"
)

// TestRangesRefused: ranges that cannot be meant are refused in words.
func TestRangesRefused(t *testing.T) {
	const nets = `"subnets":"10.1.0.0/24,fd01::/64"`
	for _, tt := range []struct{ keys, says string }{
		{nets + `,"ranges":[{"from":"10.1.0.9"}]`, `ranges[0].to: "" is not an IP address`},
		{nets + `,"ranges":[{"first":"10.1.0.9","to":"10.1.0.12"}]`, `ranges[0]: unknown key "first"`},
		{nets + `,"ranges":[{"from":"10.1.0.9","to":"10.1.1.9"}]`, "ranges[0]: 10.1.0.9 and 10.1.1.9 are not in one of the subnets"},
		{nets + `,"ranges":[{"from":"10.1.0.9","to":"fd01::9"}]`, "ranges[0]: 10.1.0.9 and fd01::9 are not in one of the subnets"},
		{nets + `,"ranges":[{"from":"10.2.0.9","to":"10.2.0.10"}]`, "ranges[0]: 10.2.0.9 and 10.2.0.10 are not in one of the subnets"},
		{nets + `,"ranges":[{"from":"10.1.0.9","to":"10.1.0.8"}]`, "ranges[0]: 10.1.0.9 is above 10.1.0.8"},
		{nets + `,"ranges":[{"from":"10.1.0.9","to":"10.1.0.20"},{"from":"10.1.0.5","to":"10.1.0.9"}]`, "ranges: 10.1.0.5-10.1.0.9 and 10.1.0.9-10.1.0.20 overlap"},
		{nets + `,"ranges":[{"from":"10.1.0.1","to":"10.1.0.1"}]`, "ranges: nothing of 10.1.0.0/24 is left for pods"},
		{nets + `,"ranges":[{"from":"fd01::1:0:0:0","to":"fd01::1:0:0:9"}]`, "ranges: nothing of fd01::/64 is left for pods"},
		{`"topology":"layer3","subnets":"10.1.0.0/16","ranges":[{"from":"10.1.0.9","to":"10.1.0.10"}]`, "ranges: leave it out"},
	} {
		_, err := ParseNetwork("shop", "blue", []byte(config(tt.keys)))
		if err == nil || !strings.Contains(err.Error(), "network shop/blue: "+tt.says) {
			t.Errorf("%s: %v, want %s", tt.keys, err, tt.says)
		}
	}
}
