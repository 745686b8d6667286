package plan

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// importing is a slice that imports Route Targets.
func importing(name string, targets ...string) desired.Resource {
	return desired.Resource{Ref: desired.Ref{Kind: desired.KindSlice, Key: name}, Origin: desired.OriginFile,
		Value: slice.Slice{Name: name, VPN: &slice.VPN{Export: []string{"65001:1"}, Import: targets}}}
}

// heard are the routes of peers: each to a destination, by a SID, with the Route Target that it
// was imported for.
func heard(routes ...[3]string) observed.State {
	s := observed.State{}.Edit()
	for _, r := range routes {
		to, err := overlay.ParseDestination(r[0])
		if err != nil {
			panic(err)
		}
		s.PutReach(to, []bgp.Route{{Reach: overlay.Reach{
			Tenant: to.Tenant, Prefix: to.Prefix, Segments: []netip.Addr{netip.MustParseAddr(r[1])},
		}, Target: r[2], Best: true}})
	}
	return s
}

// imported are the policies by what is steered, and how many policies there are.
func imported(g *Goal) (steering map[string]string, policies int) {
	steering = map[string]string{}
	for _, r := range g.Derived {
		switch v := r.Value.(type) {
		case srpolicy.Steering:
			steering[v.Key()] = v.Policy
		case srpolicy.Policy:
			policies++
		}
	}
	return steering, policies
}

// The routes of each slice's VPN are in a table of its own. A route that came for the number of
// another slice, in an earlier configuration, is in none.
func TestImportedRoutes(t *testing.T) {
	routes := [][3]string{
		{"198.51.100.0/24@tenant/1", "fc00:2::1", "65000:7"}, {"2001:db8:d::/64@tenant/1", "fc00:2::1", "65000:7"},
		{"0.0.0.0/0@tenant/2", "fc00:2::2", "65000:8"},
	}
	both := map[string]string{"198.51.100.0/24@tenant/1": "vpn:fc00:2::1", "2001:db8:d::/64@tenant/1": "vpn:fc00:2::1", "0.0.0.0/0@tenant/2": "vpn:fc00:2::2"}
	static := desired.Resource{Ref: desired.Ref{Kind: desired.KindSteering, Key: "0.0.0.0/0@tenant/2"}, Origin: desired.OriginFile,
		Value: srpolicy.Steering{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Tenant: 2, Policy: "mine"}}
	for name, tt := range map[string]struct {
		file     []desired.Resource
		want     map[string]string
		policies int
	}{
		"two slices":                     {[]desired.Resource{importing("a", "65000:7"), importing("b", "65000:8")}, both, 2},
		"in another order":               {[]desired.Resource{importing("b", "65000:8"), importing("a", "65000:7")}, both, 2},
		"one imports nothing":            {[]desired.Resource{importing("a", "65000:7"), importing("b")}, map[string]string{"198.51.100.0/24@tenant/1": "vpn:fc00:2::1", "2001:db8:d::/64@tenant/1": "vpn:fc00:2::1"}, 1},
		"a new slice took the number 1":  {[]desired.Resource{importing("0", "65000:9"), importing("a", "65000:7"), importing("b", "65000:8")}, map[string]string{}, 0},
		"a slice imports other targets":  {[]desired.Resource{importing("a", "65000:70"), importing("b", "65000:8")}, map[string]string{"0.0.0.0/0@tenant/2": "vpn:fc00:2::2"}, 1},
		"a static route wins":            {[]desired.Resource{importing("a", "65000:70"), importing("b", "65000:8"), static}, map[string]string{}, 1},
		"no slice has a VPN any more":    {nil, map[string]string{}, 0},
		"the only slice imports nothing": {[]desired.Resource{importing("a")}, map[string]string{}, 0},
	} {
		g := (&Goal{Desired: desired.State{File: tt.file}, Observed: heard(routes...)}).Derive(overlay.Self{}, nil, Scope{})
		if got, policies := imported(g); !maps.Equal(got, tt.want) || policies != tt.policies {
			t.Errorf("%s: %v and %d policies, want %v and %d", name, got, policies, tt.want, tt.policies)
		}
	}
}
