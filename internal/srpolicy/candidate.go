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
	// DelayConstraint is the policy's where it says nothing.
	DelayConstraint
}

// Validate checks a candidate path. It does not look up the policy.
func (c CandidatePath) Validate() []srv6.FieldError {
	errs := faults(srv6.CheckName("name", c.Name))
	if c.Policy == "" {
		errs.add("policy", "give the name of a policy", "is missing: a candidate path is one of a policy")
	}
	errs = append(errs, c.DelayConstraint.Check()...)
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
	// Originator and Discriminator are those of a path by BGP: its node, and the NLRI's distinguisher.
	Originator    netip.Addr `json:"originator,omitzero"`
	Discriminator uint32     `json:"discriminator,omitempty"`
	Valid         bool       `json:"valid"`
	Active        bool       `json:"active"`
	// Protects says that the data path holds the path ready: it takes over by one store.
	Protects bool   `json:"protects"`
	Why      string `json:"why"`
	// DelayConstraint is the path's, with the policy's where it says nothing. Late says that the
	// path is not valid for its delay bound alone.
	DelayConstraint
	Late bool `json:"late,omitempty"`
}

// judged is a candidate path, why each of its lists cannot be used, and why it is not for its
// delay; nil: all are.
type judged struct {
	Verdict
	of         Candidate
	lives      bool // packets can take one of its lists, within the delay bound or not
	down, slow []string
}

// Choose selects the active candidate path among a policy's own lists and the others
// (RFC 9256 section 2.9). usable returns why a list cannot be used, or nil: its first segment
// has to be reachable (section 5.1), and probes have to return where there are some. A path is
// valid if one of its lists can be used, and is not above its delay bound. Of valid paths with the
// same preference and protocol origin the installed one stays.
//
// Choose returns the policy with the lists of the active path and those of the path that
// protects it (section 9.3), which of them are down, and a verdict on each path, best first.
// The next valid path protects the active one, as far as there is room for its lists. If no
// path is valid, the policy has the best one: of those with a list that can be used, if the bound
// alone is against it. Packets take its lists with the lowest delay. Where none can be used, no
// list is down: packets try what was chosen, and take no path that nobody chose (section 8.2).
func Choose(p Policy, others []Candidate, installed string, usable func(SegmentList) error, delays Standings) (Policy, []Verdict) {
	var all []judged
	if len(p.SegmentLists) > 0 {
		own := CandidatePath{Preference: p.Preference, SegmentLists: p.SegmentLists}
		others = append([]Candidate{{CandidatePath: own}}, others...)
	}
	for _, c := range others {
		c.DelayConstraint = c.DelayConstraint.Or(p.DelayConstraint)
		var standings map[string]Standing
		if c.DelayConstraint.IsSet() {
			standings = delays[PathKey(p.Name, c.Name)]
		}
		all = append(all, judge(c, usable, standings))
	}
	if len(all) == 0 {
		return p, nil
	}
	slices.SortStableFunc(all, func(a, b judged) int {
		c, d := a.of, b.of
		return cmp.Or(
			compareBool(b.Valid, a.Valid),
			compareBool(b.lives, a.lives),
			cmp.Compare(b.Preference, a.Preference),
			cmp.Compare(cmp.Or(d.Origin, ByConfiguration), cmp.Or(c.Origin, ByConfiguration)),
			compareBool(d.Name == installed, c.Name == installed),
			cmp.Compare(c.ASN, d.ASN),
			c.Node.Compare(d.Node),
			cmp.Compare(d.Discriminator, c.Discriminator),
			strings.Compare(c.Name, d.Name),
		)
	})
	p.SegmentLists, p.Down, p.Slow = all[0].of.SegmentLists, all[0].down, all[0].slow
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
	protected := *p
	protected.Protection = by.of.SegmentLists[:min(len(by.of.SegmentLists), MaxSegmentLists-n)]
	m := len(protected.Protection)
	protected.Down, protected.Slow = join(p.Down, n, by.down, m), join(p.Slow, n, by.slow, m)
	if !protected.carry(n, n+m) {
		return
	}
	by.Protects, *p = true, protected
}

// join are the reasons of n lists and of m others; nil: all lists are without.
func join(a []string, n int, b []string, m int) []string {
	if a == nil && b == nil {
		return nil
	}
	out := make([]string, n+m)
	copy(out, a)
	copy(out[n:], b)
	return out
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
func judge(c Candidate, usable func(SegmentList) error, delays map[string]Standing) judged {
	j := judged{Verdict: Verdict{Path: c.Name, Preference: cmp.Or(c.Preference, DefaultPreference), Originator: c.Node, Discriminator: c.Discriminator, DelayConstraint: c.DelayConstraint}, of: c}
	var reasons []string
	down := make([]string, len(c.SegmentLists))
	for i, l := range c.SegmentLists {
		if err := usable(l); err != nil {
			down[i] = err.Error()
			reasons = append(reasons, down[i])
		}
	}
	up := len(down) - len(reasons)
	j.lives, j.Valid = up > 0, up > 0
	switch {
	case !j.lives:
		j.Why = "no segment list can be used: " + strings.Join(reasons, "; ")
		return j
	case len(reasons) > 0:
		j.down, j.Why = down, fmt.Sprintf("%d of %d segment lists can be used: %s", up, len(down), strings.Join(reasons, "; "))
	}
	if len(delays) > 0 {
		j.judgeDelays(delays)
	}
	return j
}

// judgeDelays finds out which of the lists that can be used carry packets: those within the bound,
// or all where none is. Those that are aside carry nothing while others do.
func (j *judged) judgeDelays(delays map[string]Standing) {
	lists := j.of.SegmentLists
	all := make([]Standing, len(lists))
	var live, within, carry []int
	for i, l := range lists {
		if j.down == nil || j.down[i] == "" {
			all[i] = delays[l.Key()]
			live = append(live, i)
			if !all[i].Above {
				within = append(within, i)
			}
		}
	}
	pool := within
	if j.Valid = len(within) > 0; !j.Valid {
		pool, j.Late = live, true
		j.Why = also(fmt.Sprintf("no segment list is within delay_bound %s", j.of.DelayBound), j.Why)
	}
	for _, i := range pool {
		if all[i].Aside == "" {
			carry = append(carry, i)
		}
	}
	if len(carry) == 0 {
		carry = pool
	}
	if len(carry) == len(live) {
		return
	}
	j.slow = make([]string, len(lists))
	for _, i := range live {
		if !slices.Contains(carry, i) {
			j.slow[i] = all[i].why(j.of.DelayConstraint)
		}
	}
	if j.Valid {
		j.Why = also(fmt.Sprintf("%d of %d segment lists not in use for the delay", len(live)-len(carry), len(lists)), j.Why)
	}
}

// explain marks the first path as active, and says why it is and the others are not.
func explain(all []judged, installed string) {
	all[0].Active = true
	for i := range all {
		v := &all[i].Verdict
		switch {
		case i == 0 && !v.Valid && all[i].lives:
			v.Why += "; no path is valid: best effort by the lowest delay"
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
