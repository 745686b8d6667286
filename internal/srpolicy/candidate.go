package srpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/srv6"
)

// DefaultPreference is the default preference of a candidate path (RFC 9256 section
// 2.7).
const DefaultPreference = 100

// CandidatePath is a candidate path of a policy, in addition to the policy's own
// segment lists, which are one too (RFC 9256 section 2.2). One of them is active at a
// time.
type CandidatePath struct {
	Name   string `json:"name"`
	Policy string `json:"policy"` // name of the policy that it is for
	// Preference decides which of the valid paths is active: the highest. Default
	// 100.
	Preference   uint32        `json:"preference,omitempty"`
	SegmentLists []SegmentList `json:"segment_lists"`
}

// Validate checks a candidate path. It does not look up the policy.
func (c CandidatePath) Validate() []srv6.FieldError {
	errs := faults(srv6.CheckName("name", c.Name))
	if c.Policy == "" {
		errs.add("policy", "give the name of a policy", "is missing: a candidate path is one of a policy")
	}
	return append(errs, checkLists(c.SegmentLists)...)
}

// Protocol origins of candidate paths. Of two paths with the same preference the higher
// origin wins (RFC 9256 section 2.3).
const (
	ByBGP           = 20
	ByConfiguration = 30
)

// Candidate is a candidate path with its origin.
type Candidate struct {
	CandidatePath
	Origin uint8 // ByConfiguration unless set
	// ASN and Node are the originator (section 2.4). The lower one wins.
	ASN  uint32
	Node netip.Addr
	// Discriminator distinguishes the paths of one originator for a policy (section
	// 2.5). The higher one wins.
	Discriminator uint32
}

// Verdict says whether a candidate path of a policy is valid and active, and why.
type Verdict struct {
	Path       string `json:"path"` // name; empty: the policy's own segment lists
	Preference uint32 `json:"preference"`
	Valid      bool   `json:"valid"`
	Active     bool   `json:"active"`
	// Protects says that the data path holds the path ready: it takes over by one store.
	Protects bool   `json:"protects"`
	Why      string `json:"why"`
}

// judged is a candidate path, and why each of its lists cannot be used; nil: all can.
type judged struct {
	Verdict
	of   Candidate
	down []string
}

// Choose selects the active candidate path among a policy's own lists and the others
// (RFC 9256 section 2.9). usable returns why a list cannot be used, or nil: its first segment
// has to be reachable (section 5.1), and probes have to return where there are some. A path is
// valid if one of its lists can be used. Of valid paths with the same preference and
// protocol origin the installed one stays.
//
// Choose returns the policy with the lists of the active path and those of the path that
// protects it (section 9.3), which of them are down, and a verdict on each path, best first.
// The next valid path protects the active one, as far as there is room for its lists. If no
// path is valid, the policy has the best one, and no list of it is down: packets try what was
// chosen, and take no path that nobody chose (section 8.2).
func Choose(p Policy, others []Candidate, installed string, usable func(SegmentList) error) (Policy, []Verdict) {
	var all []judged
	if len(p.SegmentLists) > 0 {
		all = append(all, judge(Candidate{CandidatePath: CandidatePath{Preference: p.Preference, SegmentLists: p.SegmentLists}}, usable))
	}
	for _, c := range others {
		all = append(all, judge(c, usable))
	}
	if len(all) == 0 {
		return p, nil
	}
	slices.SortStableFunc(all, func(a, b judged) int {
		c, d := a.of, b.of
		return cmp.Or(
			compareBool(b.Valid, a.Valid),
			cmp.Compare(b.Preference, a.Preference),
			cmp.Compare(cmp.Or(d.Origin, ByConfiguration), cmp.Or(c.Origin, ByConfiguration)),
			compareBool(d.Name == installed, c.Name == installed),
			cmp.Compare(c.ASN, d.ASN),
			c.Node.Compare(d.Node),
			cmp.Compare(d.Discriminator, c.Discriminator),
			strings.Compare(c.Name, d.Name),
		)
	})
	p.SegmentLists, p.Down = all[0].of.SegmentLists, all[0].down
	if len(all) > 1 && all[1].Valid {
		p.protect(&all[1])
	}
	explain(all, installed)
	verdicts := make([]Verdict, len(all))
	for i, j := range all {
		verdicts[i] = j.Verdict
	}
	return p, verdicts
}

// protect holds the lists of a valid path ready, if one of them that can be used has room.
func (p *Policy) protect(by *judged) {
	n := len(p.SegmentLists)
	lists := by.of.SegmentLists[:min(len(by.of.SegmentLists), MaxSegmentLists-n)]
	down := make([]string, n+len(lists))
	copy(down, p.Down)
	copy(down[n:], by.down)
	if !slices.Contains(down[n:], "") {
		return
	}
	by.Protects, p.Protection = true, lists
	if p.Down != nil || by.down != nil {
		p.Down = down
	}
}

// MostLists is how many lists the data path holds of a policy at most, whose candidate paths have
// so many each: those of the active path, and of the one that protects it.
func MostLists(sizes []int) int {
	var first, second int
	for _, n := range sizes {
		first, second = max(first, n), max(second, min(first, n))
	}
	return min(first+second, MaxSegmentLists)
}

// judge finds out whether a candidate path is valid, and which of its lists are.
func judge(c Candidate, usable func(SegmentList) error) judged {
	j := judged{Verdict: Verdict{Path: c.Name, Preference: cmp.Or(c.Preference, DefaultPreference)}, of: c}
	var reasons []string
	down := make([]string, len(c.SegmentLists))
	for i, l := range c.SegmentLists {
		if err := usable(l); err != nil {
			down[i] = err.Error()
			reasons = append(reasons, down[i])
		}
	}
	up := len(down) - len(reasons)
	j.Valid = up > 0
	switch {
	case !j.Valid:
		j.Why = "no segment list can be used: " + strings.Join(reasons, "; ")
	case len(reasons) > 0:
		j.down, j.Why = down, fmt.Sprintf("%d of %d segment lists can be used: %s", up, len(down), strings.Join(reasons, "; "))
	}
	return j
}

// explain marks the first path as active, and says why it is and the others are not.
func explain(all []judged, installed string) {
	all[0].Active = true
	for i := range all {
		v := &all[i].Verdict
		switch {
		case !v.Valid: // it says why
		case v.Protects:
			v.Why = also("stands by, held ready", v.Why)
		case i > 0:
			v.Why = also("stands by", v.Why)
		case len(all) == 1:
			v.Why = also("the only one", v.Why)
		case !all[1].Valid:
			v.Why = also("the only valid one", v.Why)
		case v.Preference > all[1].Preference:
			v.Why = also("highest preference", v.Why)
		case cmp.Or(all[0].of.Origin, ByConfiguration) > cmp.Or(all[1].of.Origin, ByConfiguration):
			v.Why = also("same preference as another, and configured here", v.Why)
		case v.Path == installed:
			v.Why = also("same preference as another, and it was active before", v.Why)
		default:
			v.Why = also("same preference as another: originator, discriminator and name decide", v.Why)
		}
	}
}

// also puts a reason before another one.
func also(why, more string) string {
	if more == "" {
		return why
	}
	return why + "; " + more
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
