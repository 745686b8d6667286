package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// overlayLocator is the name of the locator that the node's own SIDs are in.
const overlayLocator = "overlay"

// Derive is g with what follows from it on this node: the node's SIDs, policies to
// the other nodes and the steering there; the candidate paths that others say, and
// a policy for those whose color and endpoint no other policy has. from is what the
// scope is about a change of: what is not in the scope follows as before.
func (g *Goal) Derive(self overlay.Self, from *Goal, s Scope) *Goal {
	next := *g
	d := deriver{Goal: &next, scope: s}
	if s.Policies == nil {
		next.Self, next.Derived, next.Problems, next.Wanted = self, nil, nil, &overlay.Wanted{}
		d.index()
		if self.Name != "" {
			d.cluster()
		}
		d.importRoutes()
		if l, ok := d.Liveness(); ok {
			probes := srv6.LocalSID{SID: netip.PrefixFrom(l.SID, l.SID.BitLen()), Behavior: srv6.End, AllowUpperLayer: true}
			d.add(&d.rest, desired.Ref{Kind: desired.KindSID, Key: desired.SIDKey(probes.SID)}, probes)
		}
		d.observedClasses(from)
	} else {
		next.Self, next.Problems, next.Wanted, next.Named, next.Refused = from.Self, from.Problems, from.Wanted, from.Named, from.Refused
		before := func(r desired.Resource) bool {
			return r.Kind == desired.KindCandidatePath && r.Origin != desired.OriginOverlay && s.holds(r)
		}
		if d.rest = slices.Clip(from.Derived); slices.ContainsFunc(d.rest, before) {
			d.rest = slices.DeleteFunc(slices.Clone(d.rest), before)
		}
	}
	d.paths()
	if next.Derived = d.rest; len(d.policies) > 0 {
		next.Derived = slices.Concat(d.policies, d.rest)
	}
	return &next
}

// deriver holds what is derived, and what it is looked up in.
type deriver struct {
	*Goal
	scope          Scope
	policies, rest []desired.Resource
	ranked         observed.NamedPaths
	taken          map[string]bool // names of policies
	asked          map[desired.Ref]bool
	sourced        bool // policies have an outer source
	located        bool // somebody configured the node's locator
	classes        []class.Class
}

// index indexes the desired resources.
func (d *deriver) index() {
	d.Named, d.taken, d.asked = map[overlay.Color]string{}, map[string]bool{}, map[desired.Ref]bool{}
	d.ranked = d.Observed.Ranked()
	for r := range d.All() {
		d.asked[r.Ref] = true
		switch v := r.Value.(type) {
		case srpolicy.Policy:
			d.taken[v.Name] = true
			if v.Endpoint.IsValid() {
				d.Named[overlay.Color{Color: v.Color, Endpoint: v.Endpoint}] = v.Name
			}
		case config.Encapsulation:
			d.sourced = v.Source.IsValid()
		case class.Class:
			d.classes = append(d.classes, v)
		case config.Locator:
			d.located = d.located || v.Prefix == d.Self.Locator
		}
	}
}

// add derives a resource, unless somebody configured the same otherwise.
func (d *deriver) add(list *[]desired.Resource, ref desired.Ref, value any) bool {
	if d.asked[ref] {
		d.Problems = append(d.Problems, fmt.Sprintf("%s is configured otherwise", ref))
		return false
	}
	*list = append(*list, desired.Resource{Ref: ref, Origin: desired.OriginOverlay, Value: value})
	return true
}

// cluster derives what the node needs as a member of its cluster.
func (d *deriver) cluster() {
	ref := func(kind desired.Kind, key string) desired.Ref { return desired.Ref{Kind: kind, Key: key} }
	if p := d.Self.Locator; p.IsValid() && p.Bits()+config.DefaultFunctionBits <= 64 && !d.located {
		d.add(&d.rest, ref(desired.KindLocator, overlayLocator), config.Locator{Name: overlayLocator, Prefix: p, FunctionBits: config.DefaultFunctionBits})
	}
	for _, s := range d.Self.SIDs() {
		d.add(&d.rest, ref(desired.KindSID, desired.SIDKey(s.SID)), s)
	}
	// The policies that others made, or say paths of.
	known := make(map[overlay.Color]overlay.Known, len(d.Named)+len(d.ranked))
	for color, name := range d.Named {
		known[color] = overlay.Known{Name: name}
	}
	for i := range d.ranked {
		color := d.ranked[i].Color()
		known[color] = d.ranked[i].AddTo(known[color])
	}
	wanted := overlay.Remote(overlay.Cluster{
		Self: d.Self, Nodes: d.Nodes(), Reaches: d.Observed.Best(), Rivals: d.Observed.Rivals(), Known: known,
	})
	wanted.Left = slices.SortedFunc(maps.Keys(d.Observed.Left), netip.Addr.Compare)
	d.Wanted = &wanted
	for _, p := range wanted.Policies {
		if d.add(&d.policies, ref(desired.KindPolicy, p.Name), p) {
			d.taken[p.Name], d.Named[overlay.Color{Color: p.Color, Endpoint: p.Endpoint}] = true, p.Name
		}
	}
	for _, p := range wanted.Paths {
		d.add(&d.rest, ref(desired.KindCandidatePath, p.Name), p)
	}
	for _, s := range slices.Concat(wanted.Steering, wanted.ToNodes) {
		d.add(&d.rest, ref(desired.KindSteering, s.Key()), s)
	}
}

// observedClasses derives the observed traffic classes that find room beside those that
// somebody configured, and beside each other. The others are refused: they never keep a
// configuration from being used. Where from has the same classes, the same find room.
func (d *deriver) observedClasses(from *Goal) {
	d.Refused = map[string]string{}
	same := from != nil && observed.SameMap(from.Observed.Classes, d.Observed.Classes) &&
		desired.SameList(from.Desired.File, d.Desired.File) && desired.SameList(from.Desired.API, d.Desired.API)
	for _, c := range d.Observed.InRank() {
		ref, why := desired.Ref{Kind: desired.KindClass, Key: c.Name}, ""
		switch all := append(slices.Clip(d.classes), c.Class); {
		case same:
			why = from.Refused[c.Name]
		case d.asked[ref]:
			why = fmt.Sprintf("%s is configured otherwise", ref)
		default:
			if carries := overlay.ReservedFor(c.Color, d.Self.Tenants); carries != "" {
				why = fmt.Sprintf("color: %d is reserved: policies of this color carry %s: %s", c.Color, carries, overlay.ReservedFix)
				break
			}
			why = class.Fits(all)
		}
		if why != "" {
			d.Refused[c.Name] = why
			continue
		}
		d.classes = append(d.classes, c.Class)
		d.rest = append(d.rest, desired.Resource{Ref: ref, Origin: desired.OriginKube, Value: c.Class})
	}
}

// bindingSID is that of the policy that is there for a candidate path. A node that moves to another
// address has two policies for a moment, which suggest the same one: the second does without.
func (d *deriver) bindingSID(p *observed.NamedPath) netip.Addr {
	other := func(r desired.Resource) bool {
		policy, is := r.Value.(srpolicy.Policy)
		return is && policy.BindingSID == p.BindingSID
	}
	if p.Kube == "" && d.Desired.Process.Overlay.Mode == config.OverlayBGP && slices.ContainsFunc(d.policies, other) {
		return netip.Addr{}
	}
	return p.BindingSID
}

// paths derives the observed candidate paths of the policies in the scope, and the
// policies that are there for them alone.
func (d *deriver) paths() {
	if d.scope.Policies != nil {
		for name, p := range d.Observed.Paths {
			if d.scope.Policies[d.Named[p.Color()]] {
				d.ranked = append(d.ranked, observed.NamedPath{Name: name, Path: p})
			}
		}
	}
	for i := range d.ranked {
		p := &d.ranked[i]
		origin := desired.OriginBGP
		if p.Kube != "" {
			origin = desired.OriginKube
		}
		policy, there := d.Named[p.Color()]
		if !there && !d.Self.Address.IsValid() && !d.sourced {
			continue // until the outer source is known
		}
		if !there {
			policy = p.PolicyName // if a policy can have it here
			if len(srv6.CheckName("", policy)) > 0 || d.taken[policy] {
				policy = overlay.ByAddress(p.Advertised.Color, p.Endpoint)
			}
			d.Named[p.Color()], d.taken[policy] = policy, true
			d.policies = append(d.policies, desired.Resource{Ref: desired.Ref{Kind: desired.KindPolicy, Key: policy}, Origin: origin, Value: srpolicy.Policy{
				Name: policy, Behavior: srv6.HEncapsRed, Source: d.Self.Source(), Color: p.Advertised.Color, Endpoint: p.Endpoint, BindingSID: d.bindingSID(p),
			}})
		}
		d.rest = append(d.rest, desired.Resource{Ref: desired.Ref{Kind: desired.KindCandidatePath, Key: p.Name}, Origin: origin, Value: srpolicy.CandidatePath{
			Name: p.Name, Policy: policy, Preference: p.EffectivePreference(), SegmentLists: p.SegmentLists,
			DelayConstraint: p.DelayConstraint,
		}})
	}
}
