package plan

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// mostServices is how many SIDs a destination of a VPN is reached by at most: those of the best
// route, of routes that are equal to it, and of routes that stand by.
const mostServices = 4

// importRoutes derives what leads packets of slices' UEs to the routes that their VPNs import,
// each in the table of its VPN. A route counts for the slice that imports its Route Target: the
// number that it came for may be another slice's by now.
func (d *deriver) importRoutes() {
	all := d.Slices()
	numbers := slice.VPNNumbers(all)
	imports := map[uint8][]string{}
	for _, s := range all {
		if s.Imports() {
			imports[numbers[s.Name]] = s.VPN.Import
		}
	}
	if len(imports) == 0 {
		return
	}
	for _, routes := range d.Observed.Usable() {
		routes = servicesOf(routes, imports)
		if len(routes) == 0 {
			continue
		}
		best := routes[0]
		s := srpolicy.Steering{Prefix: best.Prefix.Masked(), Tenant: best.Tenant, Policy: d.toServices(routes)}
		if ref := (desired.Ref{Kind: desired.KindSteering, Key: s.Key()}); !d.asked[ref] { // a static route wins
			d.rest = append(d.rest, desired.Resource{Ref: ref, Origin: desired.OriginBGP, Value: s})
		}
	}
}

// servicesOf are the routes by which a slice can reach a destination, the best first, each by
// another SID.
func servicesOf(routes []observed.Route, imports map[uint8][]string) (out []observed.Route) {
	for _, r := range routes {
		known := func(o observed.Route) bool { return slices.Equal(o.Segments, r.Segments) }
		if len(r.Segments) > 0 && slices.Contains(imports[r.Tenant], r.Target) && !slices.ContainsFunc(out, known) && len(out) < mostServices {
			out = append(out, r)
		}
	}
	return out
}

// toServices returns the name of the policy to the SIDs of routes. Equal routes share the
// packets; each of the others has a candidate path, which is taken when no route leads to the
// SIDs before it (RFC 9252 section 7).
func (d *deriver) toServices(routes []observed.Route) string {
	end := lastOf(routes[0].Segments)
	name, rest := overlay.ToService(end), fnv.New32a()
	for _, r := range routes[1:] {
		fmt.Fprint(rest, r.Segments, r.Equal)
	}
	if len(routes) > 1 {
		name = fmt.Sprintf("%s.%08x", name, rest.Sum32())
	}
	if d.taken[name] {
		return name
	}
	d.taken[name] = true
	if color := (overlay.Color{Endpoint: end}); d.Named[color] == "" {
		d.Named[color] = name
	}
	p := srpolicy.Policy{Name: name, Behavior: srv6.HEncapsRed, Endpoint: end, Preference: srpolicy.DefaultPreference}
	for i, r := range routes {
		list := srpolicy.SegmentList{Weight: 1, Segments: r.Segments}
		if i == 0 || r.Equal {
			p.SegmentLists = append(p.SegmentLists, list)
			continue
		}
		path := srpolicy.CandidatePath{Name: fmt.Sprintf("%s.%d", name, i+1), Policy: name, Preference: srpolicy.DefaultPreference - uint32(i),
			SegmentLists: []srpolicy.SegmentList{list}}
		d.rest = append(d.rest, desired.Resource{Ref: desired.Ref{Kind: desired.KindCandidatePath, Key: path.Name}, Origin: desired.OriginBGP, Value: path})
	}
	d.policies = append(d.policies, desired.Resource{Ref: desired.Ref{Kind: desired.KindPolicy, Key: name}, Origin: desired.OriginBGP, Value: p})
	return name
}

func lastOf(segments []netip.Addr) netip.Addr { return segments[len(segments)-1] }

// unreached says why packets do not take an imported route: no route leads to its SID, so that
// they take a shorter prefix, or are dropped. Empty: they take it.
func (t *Tables) unreached(s *srpolicy.Steering) string {
	if !slices.Contains(t.vpns, s.Tenant) || !strings.HasPrefix(s.Policy, overlay.ServicePrefix) || t.isValid(s.Policy) {
		return ""
	}
	for _, v := range t.Verdicts[s.Policy] {
		return v.Why
	}
	return "its policy is missing"
}

// Unreached says why packets do not take a steering entry; empty: they take it.
func (t *Tables) Unreached(s srpolicy.Steering) string { return t.unreached(&s) }
