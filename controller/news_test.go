package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
)

// TestControllerTellsNews: a controller that begins to lead tells all agents to read, and tells them after a change of
// what they read. Many changes are one announcement.
func TestControllerTellsNews(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.setNodes(map[string]map[string]string{"n1": nil})
	lead := func(every time.Duration) *running {
		c := newController(w.Networks, a, leads, quiet)
		c.TellEvery(every)
		return runController(t, w, c)
	}
	news := func() string { return w.News(t) }
	announce := func(mtu int) {
		t.Helper()
		sizes := pathmtu.Sizes{pathmtu.Overlay: mtu}
		if err := w.Other(t).Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: "c1", Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
	}
	smallest := func(mtu string) {
		t.Helper()
		eventually(t, "true", func() string {
			for _, row := range w.Rows(t)["Copp"] {
				if row["name"] == "ovn-multinet smallest mtu" && strings.Contains(row["external_ids"], "mtu="+mtu+" ") {
					return "true"
				}
			}
			return "false"
		})
	}
	differs := func(before string) string {
		t.Helper()
		eventually(t, "true", func() string {
			if now := news(); now != "" && now != before {
				return "true"
			}
			return "false"
		})
		return news()
	}
	r := lead(0)
	first := differs("")
	announce(1400)
	smallest("1400")
	differs(first)
	r.stop()
	second := news() // the last one of this leader

	r = lead(time.Hour)
	third := differs(second) // the leader begins
	for _, mtu := range []string{"1300", "1350"} {
		announce(map[string]int{"1300": 1300, "1350": 1350}[mtu])
		smallest(mtu)
	}
	r.settle(t)
	if now := news(); now != third {
		t.Errorf("told again within an hour: %s after %s", now, third)
	}
}
