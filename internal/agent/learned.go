package agent

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// overlayLocator is the name of the one that the node's own SIDs are in.
const overlayLocator = "overlay"

// learnedName is what a candidate path is known by on this node.
func learnedName(node netip.Addr, a srpolicy.Advertised) string {
	return shortName("bgp", fmt.Sprintf("%s:%d:%d:%s", node, a.Distinguisher, a.Color, a.Endpoint))
}

// shortName is one that names can be: a sum stands for what is too long.
func shortName(kind, rest string) string {
	name := kind + ":" + rest
	if len(srv6.CheckName("", name)) > 0 {
		sum := sha256.Sum256([]byte(name))
		name = fmt.Sprintf("%s:%x", kind, sum[:16])
	}
	return name
}

// learn makes resources of what was told, and of the cluster: this node's SIDs,
// the policies to the others and what is steered there; candidate paths, and a
// policy for those whose color and endpoint nobody else has.
func (d *desired) learn() *desired {
	d.learned, d.wanted, d.problems = nil, &overlay.Wanted{}, nil
	l := d.newLearner()
	if d.self.Name != "" {
		l.cluster()
	}
	l.paths()
	d.learned, d.named = slices.Concat(l.policies, l.rest), l.named
	return d
}

// learner holds what is learned, and what is there already.
type learner struct {
	*desired
	policies, rest []resource
	named          map[overlay.Color]string // policies by color and endpoint
	taken          map[string]bool          // names of policies
	asked          map[Ref]bool
	order          []string // of what was told, by preference
	sourced        bool     // policies have an outer source
}

func (d *desired) newLearner() *learner {
	l := &learner{desired: d, named: map[overlay.Color]string{}, taken: map[string]bool{}, asked: map[Ref]bool{}, order: d.byPreference()}
	for r := range d.all() {
		l.asked[r.Ref] = true
		if p, ok := r.value.(srpolicy.Policy); ok {
			l.taken[p.Name] = true
			if p.Endpoint.IsValid() {
				l.named[overlay.Color{Color: p.Color, Endpoint: p.Endpoint}] = p.Name
			}
		}
		if e, ok := r.value.(config.Encapsulation); ok {
			l.sourced = e.Source.IsValid()
		}
	}
	return l
}

// add learns a resource, unless somebody configured the same otherwise.
func (l *learner) add(list *[]resource, ref Ref, origin Origin, value any) bool {
	if l.asked[ref] {
		l.problems = append(l.problems, fmt.Sprintf("%s is configured otherwise", ref))
		return false
	}
	*list = append(*list, resource{ref, origin, value})
	return true
}

// cluster learns what the node needs as a member of it.
func (l *learner) cluster() {
	if p := l.self.Locator; p.IsValid() && p.Bits()+config.DefaultFunctionBits <= 64 && !l.hasLocator(p) {
		l.add(&l.rest, Ref{KindLocator, overlayLocator}, OriginOverlay, config.Locator{Name: overlayLocator, Prefix: p, FunctionBits: config.DefaultFunctionBits})
	}
	for _, s := range l.self.SIDs() {
		l.add(&l.rest, Ref{KindSID, sidKey(s.SID)}, OriginOverlay, s)
	}
	wanted := overlay.Remote(overlay.Cluster{Self: l.self, Nodes: l.nodes(), Reaches: l.told.best(), Rivals: l.told.rivals(), Known: l.known()})
	l.wanted = &wanted
	for _, p := range l.wanted.Policies {
		if l.add(&l.policies, Ref{KindPolicy, p.Name}, OriginOverlay, p) {
			l.taken[p.Name], l.named[overlay.Color{Color: p.Color, Endpoint: p.Endpoint}] = true, p.Name
		}
	}
	for _, p := range l.wanted.Paths {
		l.add(&l.rest, Ref{KindCandidatePath, p.Name}, OriginOverlay, p)
	}
	for _, s := range slices.Concat(l.wanted.Steering, l.wanted.ToNodes) {
		l.add(&l.rest, Ref{KindSteering, steeringKey(s)}, OriginOverlay, s)
	}
}

// nodes are the others, of the file or as Kubernetes told.
func (d *desired) nodes() []overlay.Node {
	o := &d.process.Overlay
	if o.Mode == config.OverlayKube {
		return append(d.told.members(), d.told.still()...)
	}
	out := make([]overlay.Node, len(o.Nodes))
	for i, n := range o.Nodes {
		out[i] = overlay.Complete(n, o.SIDs == config.SIDsDouble)
	}
	return append(out, d.told.still()...)
}

func (l *learner) hasLocator(p netip.Prefix) bool {
	for r := range l.all() {
		if v, ok := r.value.(config.Locator); ok && v.Prefix == p {
			return true
		}
	}
	return false
}

// known are the policies that others made, or told paths of.
func (l *learner) known() map[overlay.Color]overlay.Known {
	out := make(map[overlay.Color]overlay.Known, len(l.named)+len(l.told.paths))
	for color, name := range l.named {
		out[color] = overlay.Known{Name: name}
	}
	for _, name := range l.order {
		h := l.told.paths[name]
		out[h.color()] = h.addTo(out[h.color()])
	}
	return out
}

// paths learns the candidate paths that were told.
func (l *learner) paths() {
	for _, name := range l.order {
		h := l.told.paths[name]
		policy, there := l.named[h.color()]
		if !there && !l.self.Address.IsValid() && !l.sourced {
			continue // until it is known from where
		}
		if !there {
			policy = newPolicyName(h.Advertised, l.taken)
			l.named[h.color()], l.taken[policy] = policy, true
			l.policies = append(l.policies, resource{Ref{KindPolicy, policy}, h.resource(name, policy).origin, srpolicy.Policy{
				Name: policy, Behavior: srv6.HEncapsRed, Source: l.self.Address, Color: h.Color, Endpoint: h.Endpoint, BindingSID: h.BindingSID,
			}})
		}
		l.rest = append(l.rest, h.resource(name, policy))
	}
}

// byPreference are the names of what was heard. The first path of a policy gives
// it its binding SID.
func (d *desired) byPreference() []string {
	type ranked struct {
		name       string
		preference uint32
	}
	list := make([]ranked, 0, len(d.told.paths))
	for name, h := range d.told.paths {
		list = append(list, ranked{name, h.EffectivePreference()})
	}
	slices.SortFunc(list, func(a, b ranked) int { return comparePreference(a.name, b.name, a.preference, b.preference) })
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.name
	}
	return names
}

func comparePreference(a, b string, x, y uint32) int {
	return cmp.Or(cmp.Compare(y, x), cmp.Compare(a, b))
}

// newPolicyName is the name that came with the path, if it can be one here.
func newPolicyName(a srpolicy.Advertised, taken map[string]bool) string {
	if len(srv6.CheckName("", a.PolicyName)) == 0 && !taken[a.PolicyName] {
		return a.PolicyName
	}
	return overlay.ByAddress(a.Color, a.Endpoint)
}

// candidates are the candidate paths of each policy, with their provenance.
func (d *desired) candidates(paths []srpolicy.CandidatePath) map[string][]srpolicy.Candidate {
	out := map[string][]srpolicy.Candidate{}
	for _, p := range paths {
		c := srpolicy.Candidate{CandidatePath: p}
		if h, ok := d.told.paths[p.Name]; ok && h.Kube == "" {
			c.Origin, c.ASN, c.Node, c.Discriminator = srpolicy.ByBGP, h.ASN, h.Node, h.Distinguisher
		}
		out[p.Policy] = append(out[p.Policy], c)
	}
	return out
}
