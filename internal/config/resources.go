package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// argsBits is the length of Args.Mob.Session (RFC 9433 section 6.1).
const argsBits = 40

// policy looks up a referenced policy. It returns nil if no name is given.
func (v *validator) policy(field, name string) *srpolicy.Policy {
	if name == "" {
		return nil
	}
	p, ok := v.policies[name]
	if !ok {
		missing(&v.problems, field, name, "policies", slices.Collect(maps.Keys(v.policies)), "policy %q does not exist", name)
	}
	return p
}

// policyL3 looks up a policy that encapsulates layer-3 packets.
func (v *validator) policyL3(field, name string) *srpolicy.Policy {
	p := v.policy(field, name)
	if p != nil && p.L2() {
		v.add(field, "name a policy of behavior H.Encaps or H.Encaps.Red", "policy %q is %s, which takes Ethernet frames", name, p.Behavior)
		return nil
	}
	return p
}

func checkSIDs(v *validator) {
	onlyUplinks := v.Overlay.IsSet() && len(v.Interfaces) == 0
	for i, s := range v.SIDs {
		at := fmt.Sprintf("sids[%d]", i)
		v.fields(at, s.Validate())
		if s.Interface != "" {
			v.interfaceName(at+".interface", s.Interface)
		}
		// Packets may come in by a cluster's uplinks only. An unknown behaviour is said already.
		if onlyUplinks && s.Behavior != srv6.BehaviorNone && !slices.Contains(uplinkBehaviors, s.Behavior) {
			v.add(at+".behavior", "list the interface that its packets come in by under interfaces (not an uplink), "+
				"or use one of End, End.DT4, End.DT6, End.DT46, End.B6.Encaps, End.B6.Encaps.Red",
				"%s is not served on the overlay's uplinks, and there are no other interfaces", s.Behavior)
		}
		p := v.policyL3(at+".policy", s.Policy)
		if p == nil {
			continue
		}
		// SID and policy have to agree on the SRH. Otherwise one of the two would not
		// say what happens to packets.
		wants, binding := boundPolicies[s.Behavior]
		if is := p.BindingBehavior(); binding && s.Behavior != is {
			v.add(at+".behavior", fmt.Sprintf("give this SID behavior: %s, or policy %q behavior: %s", is, p.Name, wants),
				"%s does not go with policy %q, which is %s", s.Behavior, p.Name, p.EffectiveBehavior())
		}
		if s.Behavior == srv6.EndMGTP6D || s.Behavior == srv6.EndMGTP6DDi && s.ArgsOffset > 0 {
			v.argsOfPolicy(at, s.ArgsOffset, p)
		}
	}
}

// uplinkBehaviors lists the behaviours of culvert_uplink (bpf/uplink.h). It leaves
// other SIDs to the kernel, which does not know them.
var uplinkBehaviors = []srv6.Behavior{srv6.End, srv6.EndDT4, srv6.EndDT6, srv6.EndDT46, srv6.EndB6Encaps, srv6.EndB6EncapsRed}

// boundPolicies lists the behaviours of policies behind binding SIDs.
var boundPolicies = map[srv6.Behavior]srv6.Behavior{
	srv6.EndB6Encaps:    srv6.HEncaps,
	srv6.EndB6EncapsRed: srv6.HEncapsRed,
}

// argsOfPolicy requires room for an argument in each list of a policy.
func (v *validator) argsOfPolicy(at string, offset uint8, p *srpolicy.Policy) {
	v.argsFree(at, offset, fmt.Sprintf("policy %q", p.Name), p.SegmentLists)
	for _, c := range v.paths[p.Name] {
		v.argsFree(at, offset, fmt.Sprintf("candidate path %q", c.Name), c.SegmentLists)
	}
}

// argsFree requires that Args.Mob.Session overwrites nothing.
func (v *validator) argsFree(at string, offset uint8, of string, lists []srpolicy.SegmentList) {
	for i, l := range lists {
		if len(l.Segments) == 0 {
			continue
		}
		last := l.Segments[len(l.Segments)-1]
		if argsOverwrite(last, offset) {
			v.add(at+".args_offset", fmt.Sprintf("leave bits %d to %d of the last segment 0, or set args_offset to where its argument starts", offset, int(offset)+argsBits-1),
				"Args.Mob.Session would overwrite bits of %s, the last of segment list %d of %s", last, i, of)
		}
	}
}

// argsOverwrite says whether bits of a SID are set where its argument goes.
func argsOverwrite(sid netip.Addr, offset uint8) bool {
	if !sid.Is6() || offset > 128-argsBits {
		return false
	}
	b := sid.As16()
	for bit := int(offset); bit < int(offset)+argsBits; bit++ {
		if b[bit/8]&(0x80>>(bit%8)) != 0 {
			return true
		}
	}
	return false
}

func checkPolicies(v *validator) {
	names, bindings, colors := v.unique(), v.unique(), v.unique()
	for i, p := range v.Policies {
		at := fmt.Sprintf("policies[%d]", i)
		v.fields(at, p.Validate())
		names.check(at+".name", p.Name, "give each policy its own name")
		v.refuse(len(p.SegmentLists) == 0 && len(v.paths[p.Name]) == 0 && !(v.BGP.IsSet() && p.Endpoint.IsValid()),
			at+".segment_lists", "give segment_lists: [{segments: [...]}], or a candidate path with policy: "+p.Name, "is missing: a policy needs a segment list")
		if p.BindingSID.IsValid() {
			bindings.check(at+".binding_sid", p.BindingSID.String(), "give each policy its own")
		}
		if p.Color != 0 && p.Endpoint.IsValid() {
			colors.check(at+".color", "color "+strconv.FormatUint(uint64(p.Color), 10)+", endpoint "+p.Endpoint.String(), "a policy is known by color and endpoint: change one of them")
		}
		v.refuse(!p.Source.IsValid() && !v.Encapsulation.Source.IsValid(),
			at+".source", "set encapsulation.source, an IPv6 address of this node", "the policy has no outer source address")
		v.measured(at, p.DelayConstraint, p.DelayConstraint, p.SegmentLists)
	}
}

func checkCandidatePaths(v *validator) {
	names := v.unique()
	for i, p := range v.CandidatePaths {
		at := fmt.Sprintf("candidate_paths[%d]", i)
		v.fields(at, p.Validate())
		names.check(at+".name", p.Name, "give each candidate path its own name")
		v.policy(at+".policy", p.Policy)
		c := p.DelayConstraint
		if of := v.policies[p.Policy]; of != nil {
			c = c.Or(of.DelayConstraint)
		}
		v.measured(at, p.DelayConstraint, c, p.SegmentLists)
	}
}

// measured requires probes of all lists that are chosen by their delay: own is what the resource
// itself asks for, and all includes what its policy does.
func (v *validator) measured(at string, own, all srpolicy.DelayConstraint, lists []srpolicy.SegmentList) {
	field := at + ".delay_bound"
	if own.DelayBound == 0 {
		field = at + ".lowest_delay"
	}
	v.refuse(own.IsSet() && !v.Liveness.Enabled, field,
		"give liveness: {enabled: true, sid: ADDRESS}, or remove it", "nothing measures delays: liveness is off")
	if !all.IsSet() || !v.Liveness.Enabled || v.Overlay.IsSet() { // a cluster knows more ends than the file
		return
	}
	for i, l := range lists {
		if len(l.Segments) != 1 {
			continue
		}
		s := l.Segments[0]
		known := slices.ContainsFunc(v.Liveness.Ends, func(e LivenessEnd) bool { return e.Locator.Contains(s) })
		v.refuse(!known, fmt.Sprintf("%s.segment_lists[%d].segments", at, i),
			"give an End of its router: liveness.ends: [{locator: PREFIX, sid: SID}]", "no probe can measure the way to %s, and it is chosen by delay", s)
	}
}

func checkTunnels(v *validator) {
	names, teids := v.unique(), v.unique()
	for i, t := range v.Tunnels {
		at := fmt.Sprintf("tunnels[%d]", i)
		v.fields(at, t.Validate())
		names.check(at+".name", t.Name, "give each tunnel its own name")
		if t.LocalTEID != 0 {
			teids.check(at+".local_teid", fmt.Sprintf("TEID %d", t.LocalTEID), "give each tunnel its own")
			v.refuse(len(v.GTPU.Addresses) == 0,
				at+".local_teid", "list under gtpu.addresses where this node receives GTP-U", "the node has no GTP-U address to receive on")
		}
		v.policyL3(at+".policy", t.Policy)
		if t.SwitchTo != t.Name || !t.Remote.IsValid() { // else of two ends: received here, sent on there
			v.tunnel(at+".switch_to", t.SwitchTo)
		}
		if t.Remote.IsValid() {
			v.refuse(slices.Contains(v.GTPU.Addresses, t.Remote),
				at+".remote", "the address of the other end", "%s is this node's own GTP-U address: packets would go in circles", t.Remote)
			sameFamily := func(a netip.Addr) bool { return a.Is4() == t.Remote.Is4() }
			v.refuse(!t.Source.IsValid() && !slices.ContainsFunc(v.GTPU.Addresses, sameFamily),
				at+".source", "set it, or list an address of the same family as remote under gtpu.addresses", "the tunnel to %s has no outer source address", t.Remote)
		}
	}
}

// tunnel requires a referenced tunnel to exist, if a name is given.
func (v *validator) tunnel(field, name string) {
	t, ok := v.tunnels[name]
	if name == "" {
		return
	}
	if !ok {
		missing(&v.problems, field, name, "tunnels", slices.Collect(maps.Keys(v.tunnels)), "tunnel %q does not exist", name)
		return
	}
	v.refuse(!t.Remote.IsValid(), field, "set remote and remote_teid of that tunnel", "tunnel %q has no remote to send to", name)
}

func checkSteering(v *validator) {
	keys := v.unique()
	for i, s := range v.Steering {
		at := fmt.Sprintf("steering[%d]", i)
		v.fields(at, s.Validate())
		match := at + ".prefix"
		if !s.Prefix.IsValid() {
			match = at + ".interface"
		}
		keys.check(match, s.Key(), "remove one of the two")
		isTenant := func(t overlay.Tenant) bool { return t.ID == s.Tenant }
		isVPN := int(s.Tenant) <= len(slice.VPNNumbers(v.Slices)) // whose routes are derived
		v.refuse(s.Tenant != 0 && !isVPN && !slices.ContainsFunc(v.Overlay.Tenants, isTenant),
			at+".tenant", "the id of one of overlay.tenants", "there is no tenant %d", s.Tenant)
		if s.Interface != "" {
			v.attached(at+".interface", s.Interface, roleOfSteering(s))
			inPool := func(p netip.Prefix) bool { return p.Bits() <= s.Prefix.Bits() && p.Contains(s.Prefix.Addr()) }
			v.refuse(s.Prefix.IsValid() && slices.ContainsFunc(v.GTPU.Pools, inPool),
				at+".prefix", "steer it without interface, or take it out of gtpu.pools", "%s lies in a pool, whose addresses are the same for all interfaces", s.Prefix)
		}
		if p := v.policy(at+".policy", s.Policy); p != nil && p.L2() && s.Prefix.IsValid() {
			v.add(at+".policy", "steer by interface, or name a policy of behavior H.Encaps or H.Encaps.Red",
				"policy %q is %s, which takes the frames of an interface", s.Policy, p.Behavior)
		}
		v.tunnel(at+".tunnel", s.Tunnel)
		if s.GTP4D != nil {
			v.policyL3(at+".h_m_gtp4_d.policy", s.GTP4D.Policy)
		}
	}
}

// attached requires the program on an interface, and the role by which its frames enter.
func (v *validator) attached(field, name string, role Role) {
	in := v.interfaces[name]
	if in == nil {
		missing(&v.problems, field, name, "interfaces", slices.Collect(maps.Keys(v.interfaces)), "%q is not among the interfaces", name)
	}
	v.refuse(in != nil && len(in.Roles) > 0 && !in.HasRole(role, RoleAny),
		field, fmt.Sprintf("add %s to its roles", role), "the roles of interface %q do not accept these frames", name)
}
