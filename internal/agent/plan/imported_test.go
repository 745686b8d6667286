package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// toPEs are links by which locators of provider edges are reached.
func toPEs(locators ...string) *netdev.Snapshot {
	s := &netdev.Snapshot{Links: []netdev.Link{{Index: 1, Name: "eth0", Up: true, Carrier: true}}}
	for _, l := range locators {
		s.Routes = append(s.Routes, netdev.Route{Table: netdev.TableMain, Prefix: netip.MustParsePrefix(l), Type: netdev.RouteUnicast,
			Hops: []netdev.Hop{{Gateway: netip.MustParseAddr("fe80::1"), Ifindex: 1, Weight: 1}}})
	}
	return s
}

// A destination with routes of several provider edges takes the best whose SID a route leads to, and
// the next one when its route is gone. Equal routes share the packets. A destination that
// nobody leads to is not steered, so that a shorter prefix takes its packets; the status says why.
func TestImportedRoutesTakeOver(t *testing.T) {
	to := func(text string, routes ...bgp.Route) (overlay.Destination, []bgp.Route) {
		d, err := overlay.ParseDestination(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := range routes {
			routes[i].Tenant, routes[i].Prefix, routes[i].Target, routes[i].Best = d.Tenant, d.Prefix, "65000:7", i == 0
		}
		return d, routes
	}
	by := func(sid string, equal bool) bgp.Route {
		return bgp.Route{Reach: overlay.Reach{Segments: []netip.Addr{netip.MustParseAddr(sid)}}, Equal: equal}
	}
	s := observed.State{}.Edit()
	s.PutReach(to("198.51.100.0/24@tenant/1", by("fc00:2::1", false), by("fc00:2::1", true), by("fc00:3::1", false), by("fc00:4::1", false)))
	s.PutReach(to("203.0.113.0/24@tenant/1", by("fc00:2::1", false), by("fc00:3::1", true)))
	s.PutReach(to("192.0.2.0/24@tenant/1", by("fc00:2::1", false)))
	file := []desired.Resource{importing("a", "65000:7"), {Ref: desired.Ref{Kind: desired.KindSettings, Key: desired.KeyEncapsulation},
		Origin: desired.OriginFile, Value: config.Encapsulation{Source: netip.MustParseAddr("fc00::1")}}}
	g := (&Goal{Desired: desired.State{File: file, Process: desired.Process{UPF: config.UPF{N4: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}}, Observed: s}).
		Derive(overlay.Self{}, nil, Scope{})
	c := g.Config(Scope{})
	var tables *Tables
	for _, step := range []struct {
		what    string
		reached []string
		want    map[string]string // SIDs that carry packets, by prefix; "": not steered
	}{
		{"all are reached", []string{"fc00:2::/32", "fc00:3::/32", "fc00:4::/32"},
			map[string]string{"198.51.100.0/24": "fc00:2::1", "203.0.113.0/24": "fc00:2::1 fc00:3::1", "192.0.2.0/24": "fc00:2::1"}},
		{"the best is not", []string{"fc00:3::/32", "fc00:4::/32"},
			map[string]string{"198.51.100.0/24": "fc00:3::1", "203.0.113.0/24": "fc00:3::1", "192.0.2.0/24": ""}},
		{"one is left", []string{"fc00:4::/32"}, map[string]string{"198.51.100.0/24": "fc00:4::1", "203.0.113.0/24": "", "192.0.2.0/24": ""}},
		{"none is left", nil, map[string]string{"198.51.100.0/24": "", "203.0.113.0/24": "", "192.0.2.0/24": ""}},
		{"the best is back", []string{"fc00:2::/32"}, map[string]string{"198.51.100.0/24": "fc00:2::1", "203.0.113.0/24": "fc00:2::1", "192.0.2.0/24": "fc00:2::1"}},
	} {
		scope := Scope{}
		if tables != nil {
			scope = scope.WithKinds(nil) // as where links change
		}
		tables = Compile(g, c, toPEs(step.reached...), tables, scope)
		for prefix, want := range step.want {
			entry := srpolicy.Steering{Prefix: netip.MustParsePrefix(prefix), Tenant: 1}
			at := slices.IndexFunc(c.Steering, func(s srpolicy.Steering) bool { return s.Key() == entry.Key() })
			if at < 0 {
				t.Fatalf("%s is not imported", prefix)
			}
			var got []string
			steered, is := tables.Steering[entry.Key()]
			if p := tables.Policies[steered.Policy]; is {
				for i, l := range p.SegmentLists {
					if p.DownAt(i) == "" {
						got = append(got, l.Segments[0].String())
					}
				}
			}
			why := tables.Unreached(c.Steering[at])
			if strings.Join(got, " ") != want || is != (want != "") || (why == "") != is || !is && !strings.Contains(why, "no route") {
				t.Errorf("%s: %s takes %q, want %q; %q", step.what, prefix, got, want, why)
			}
		}
	}
}
