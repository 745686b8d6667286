package agent

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// heard is a candidate path that a peer advertises.
type heard struct {
	bgp.Path
	// restored says that an earlier daemon was told it: it holds until the peer
	// has told everything again, or has had time to.
	restored bool
}

// policyKey is what a policy is known by beyond this node (RFC 9256 section 2.1).
type policyKey struct {
	color    uint32
	endpoint netip.Addr
}

// learnedName is what a candidate path is known by on this node.
func learnedName(node netip.Addr, a srpolicy.Advertised) string {
	name := fmt.Sprintf("bgp:%s:%d:%d:%s", node, a.Distinguisher, a.Color, a.Endpoint)
	if len(name) > srv6.MaxNameLength {
		sum := sha256.Sum256([]byte(name))
		name = fmt.Sprintf("bgp:%x", sum[:16])
	}
	return name
}

// learn makes resources of what was heard: candidate paths, and a policy for
// those whose color and endpoint nobody configured.
func (d *desired) learn() *desired {
	d.learned = nil
	named, taken := map[policyKey]string{}, map[string]bool{}
	for r := range d.all() {
		if p, ok := r.value.(srpolicy.Policy); ok {
			taken[p.Name] = true
			if p.Endpoint.IsValid() {
				named[policyKey{p.Color, p.Endpoint}] = p.Name
			}
		}
	}
	var policies, paths []resource
	for _, name := range d.byPreference() {
		h := d.heard[name]
		key := policyKey{h.Color, h.Endpoint}
		policy, there := named[key]
		if !there {
			policy = newPolicyName(h.Advertised, taken)
			named[key], taken[policy] = policy, true
			policies = append(policies, resource{Ref{KindPolicy, policy}, OriginBGP, srpolicy.Policy{
				Name: policy, Behavior: srv6.HEncapsRed, Color: h.Color, Endpoint: h.Endpoint, BindingSID: h.BindingSID,
			}})
		}
		paths = append(paths, resource{Ref{KindCandidatePath, name}, OriginBGP, srpolicy.CandidatePath{
			Name: name, Policy: policy, Preference: h.EffectivePreference(), SegmentLists: h.SegmentLists,
		}})
	}
	d.learned = append(policies, paths...)
	return d
}

// byPreference are the names of what was heard. The first path of a policy gives
// it its binding SID.
func (d *desired) byPreference() []string {
	return slices.SortedFunc(maps.Keys(d.heard), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.heard[b].EffectivePreference(), d.heard[a].EffectivePreference()), cmp.Compare(a, b))
	})
}

// newPolicyName is the name that came with the path, if it can be one here.
func newPolicyName(a srpolicy.Advertised, taken map[string]bool) string {
	if len(srv6.CheckName("", a.PolicyName)) == 0 && !taken[a.PolicyName] {
		return a.PolicyName
	}
	return fmt.Sprintf("c%d:%s", a.Color, a.Endpoint)
}

// candidates are the candidate paths of each policy, with their provenance.
func (d *desired) candidates(paths []srpolicy.CandidatePath) map[string][]srpolicy.Candidate {
	out := map[string][]srpolicy.Candidate{}
	for _, p := range paths {
		c := srpolicy.Candidate{CandidatePath: p}
		if h, ok := d.heard[p.Name]; ok {
			c.Origin, c.ASN, c.Node, c.Discriminator = srpolicy.ByBGP, h.ASN, h.Node, h.Distinguisher
		}
		out[p.Policy] = append(out[p.Policy], c)
	}
	return out
}
