package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// chance makes what others say of a small cluster.
type chance struct {
	*rand.Rand
	d *daemon
}

func (c chance) one(list ...string) string { return list[c.IntN(len(list))] }

// path is a candidate path: of a node's policy or of one that nobody else has, some
// of them with what cannot be.
func (c chance) path() srpolicy.Advertised {
	n := nodeOf(2 + c.IntN(3))
	a := srpolicy.Advertised{Color: uint32(4 + 2*c.IntN(3)), Endpoint: n.Address, Distinguisher: uint32(c.IntN(2)), Preference: uint32(c.IntN(3) * 100)}
	if c.IntN(4) == 0 {
		a.BindingSID = addr(c.one("fc00:ff::1", "fc00:ff::2", "fc00:0:1:4::"))
	}
	if c.IntN(3) == 0 {
		a.PolicyName = c.one("gold", "silver")
	}
	for range 1 + c.IntN(3) {
		a.SegmentLists = append(a.SegmentLists, srpolicy.SegmentList{Weight: 1, Segments: []netip.Addr{
			addr(c.one("2001:db8::7", "2001:db8::8", "2001:db9::1")), addr(c.one("fc00:0:2:4::", "fc00:0:3:4::"))}[c.IntN(2):]})
	}
	return a
}

// update is something that somebody says.
func (c chance) update(t *testing.T) observed.Update {
	q := observed.NewQueue()
	h, err := observed.NewBGP(observed.Config{}, &observed.State{}, q, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k := observed.NewKubernetes(observed.Config{}, nil, q, slog.New(slog.DiscardHandler))
	a := c.path()
	switch c.IntN(12) {
	case 0:
		k.PutNode(nodeOf(2 + c.IntN(3)))
	case 1:
		k.DeleteNode(fmt.Sprintf("node-%d", 2+c.IntN(3)))
	case 2:
		p := prefix(c.one("10.99.1.0/24", "10.99.2.0/24", "fc00:0:2::/48"))
		h.PutReach(overlay.Destination{Prefix: p}, []bgp.Route{{Reach: overlay.Reach{Prefix: p, Address: nodeOf(2 + c.IntN(4)).Address}, Best: true}})
	case 3:
		h.WithdrawReach(overlay.Destination{Prefix: prefix(c.one("10.99.1.0/24", "10.99.2.0/24", "fc00:0:2::/48"))})
	case 4, 5, 6:
		h.Put(bgp.Path{Advertised: a, Source: bgp.Source{ASN: 65001, Node: addr(c.one("10.0.0.1", "10.0.0.2"))}})
	case 7:
		h.Withdraw(a)
	case 8, 9, 10:
		k.PutPath(kube.Path{Name: c.one("a", "b", "c"), Origin: "configmap x", Advertised: a})
	default:
		k.WithdrawPath(c.one("a", "b", "c"))
	}
	return q.Take()[0]
}

// asks for something through the API.
func (c chance) fragment(t *testing.T) *config.Config {
	list := fmt.Sprintf("segment_lists: [{segments: ['%s', '%s']}]", c.one("2001:db8::7", "2001:db9::1"), c.one("fc00:0:2:4::", "fc00:0:3:4::"))
	fragment, err := config.Decode([]byte(c.one(
		"policies: [{name: chosen, color: 4, endpoint: '2001:db8::2', source: '2001:db8::1', "+list+"}]",
		"policies: [{name: chosen, color: 6, endpoint: '2001:db8::2', source: '2001:db8::1', preference: 150, "+list+"}]",
		"policies: [{name: other, color: 77, endpoint: '2001:db8::2', source: '2001:db8::1', "+list+"}]",
		"candidate_paths: [{name: mine, policy: chosen, preference: "+c.one("50", "300")+", "+list+"}]",
		"candidate_paths: [{name: 'node-2:ipv4', policy: other, "+list+"}]",
	)))
	if err != nil {
		t.Fatal(err)
	}
	return fragment
}

// whole is what a goal comes to in the scope of everything, in words that do not
// depend on the order in which things came.
func (d *daemon) whole(g *plan.Goal) (derived []string, wanted overlay.Wanted, err error) {
	full := *g
	full.Derived, full.Wanted, full.Named, full.Problems = nil, nil, nil, nil
	self, _ := full.SelfOn(d.core.links)
	m := full.Derive(self, nil, plan.Scope{})
	if _, err := desired.Index(slices.Collect(m.All())); err != nil {
		return nil, overlay.Wanted{}, err
	}
	c := m.Config(plan.Scope{})
	if err := c.Validate(); err != nil {
		return inWords(m.Derived), *m.Wanted, err
	}
	return inWords(m.Derived), *m.Wanted, d.core.goal.CheckInterfaces(c, plan.Scope{}, d.core.links)
}

func inWords(list []desired.Resource) []string {
	var out []string
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s %s %+v", r.Ref, r.Origin, r.Value))
	}
	slices.Sort(out)
	return out
}

// network is one in which some ways are open and others are not.
func (c chance) network() *netdev.Snapshot {
	s := underlay()
	if c.IntN(2) == 0 {
		s = beyond()
	}
	s.Routes[0].Prefix = prefix(c.one("2001:db8::/64", "2001:db8::/125"))
	return s
}

// TestScopeIsWhole changes the observed state, the desired state and the links at
// random. After each step the agent must have what planning in the zero Scope,
// that of everything, would give it.
func TestScopeIsWhole(t *testing.T) {
	const steps = 600
	small := 0
	for seed := range uint64(4) {
		dp := newFake()
		d, k := byKube(t, t.TempDir(), dp)
		k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
		d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
		d.holds(t, "it is a member", func() bool { return d.core.goal.Self.Name != "" })
		d.core.mu.Lock()
		d.core.goal.Desired.Process.Limits.SegmentLists = 24 // is reached now and then
		d.core.mu.Unlock()
		c := chance{rand.New(rand.NewPCG(seed, 1)), d}
		for step := range steps {
			before := *d.core.goal
			var err, want error
			switch c.IntN(12) {
			case 0: // the network changes, and now and then the data path takes not all that follows
				dp.fails(c.one("", "", "policy node-2", "policy chosen"))
				d.core.update(c.network())
				dp.fails("")
				d.core.retry()
			case 1, 2:
				fragment := c.fragment(t)
				_, err = d.Add(context.Background(), fragment)
				want = d.wouldAdd(&before, fragment)
			default:
				u := c.update(t)
				next := before
				next.Observed = before.Observed.Edit()
				u.Apply(&next.Observed)
				if plan.ScopeOf(&before, &next, plan.TouchedPaths(&before, &next)).Policies != nil {
					small++
				}
				_, _, want = d.whole(&next)
				_, err = d.core.observeAll([]observed.Update{u})
			}
			if (err == nil) != (want == nil) {
				t.Fatalf("seed %d, step %d: %v, but in the scope of everything %v", seed, step, err, want)
			}
			d.checkWhole(t, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
	if small < steps/4 {
		t.Errorf("%d changes had a small scope: the test says little of them", small)
	}
}

// wouldAdd says why the scope of everything would refuse a fragment.
func (d *daemon) wouldAdd(before *plan.Goal, fragment *config.Config) error {
	next := *before
	var err error
	if next.Desired, _, err = before.Desired.WithAPI(desired.Completed(fragment)); err != nil {
		return err
	}
	if _, _, err := d.whole(&next); err != nil {
		return err
	}
	g := next.Derive(next.Self, nil, plan.Scope{})
	return g.Validate(g.Config(plan.Scope{}), plan.Scope{}, 0)
}

// checkWhole compares all that there is with what it would be.
func (d *daemon) checkWhole(t *testing.T, at string) {
	t.Helper()
	learned, wanted, err := d.whole(d.core.goal)
	if err != nil {
		t.Fatalf("%s: what is there cannot be: %v", at, err)
	}
	if got := inWords(d.core.goal.Derived); !slices.Equal(got, learned) {
		t.Fatalf("%s: learned\n%s\nwant\n%s", at, strings.Join(got, "\n"), strings.Join(learned, "\n"))
	}
	is := *d.core.goal.Wanted
	for _, w := range []*overlay.Wanted{&is, &wanted} { // in whatever order
		w.Routes = slices.SortedFunc(slices.Values(w.Routes), func(a, b overlay.Route) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	if !reflect.DeepEqual(is, wanted) {
		t.Fatalf("%s: wanted\n%+v\nwant\n%+v", at, is, wanted)
	}
	tables := d.core.writer.Tables
	all := plan.Compile(d.core.goal, d.core.goal.Config(plan.Scope{}), d.core.links, tables, plan.Scope{})
	if !reflect.DeepEqual(all.Policies, tables.Policies) || !reflect.DeepEqual(all.Steering, tables.Steering) || !maps.Equal(all.SessionWays, tables.SessionWays) ||
		all.ListsBeyond(plan.Scope{Policies: map[string]bool{}}) != tables.ListsBeyond(plan.Scope{Policies: map[string]bool{}}) {
		t.Fatalf("%s: tables\n%+v\nwant\n%+v", at, tables.Policies, all.Policies)
	}
	if !reflect.DeepEqual(d.dp.policies, d.core.writer.Tables.Policies) {
		t.Fatalf("%s: the data path has\n%+v\nwant\n%+v", at, d.dp.policies, d.core.writer.Tables.Policies)
	}
	for name, verdicts := range all.Verdicts {
		// Why it is active, and the order of those that are not, depend on what was
		// active before.
		if got, want := verdictsInWords(tables.Verdicts[name]), verdictsInWords(verdicts); !slices.Equal(got, want) {
			t.Fatalf("%s: verdicts on %s: %s, want %s", at, name, got, want)
		}
	}
}

func verdictsInWords(list []srpolicy.Verdict) (out []string) {
	for _, v := range list {
		out = append(out, fmt.Sprint(v.Path, v.Preference, v.Valid, v.Active))
	}
	slices.Sort(out)
	return out
}
