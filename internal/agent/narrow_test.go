package agent

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

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

// told is a candidate path: of a node's policy or of one that nobody else has, some
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

// event is something that somebody says.
func (c chance) event() hearing {
	h, k := &headend{inbox: newInbox()}, &kubernetes{inbox: newInbox(), said: map[string]uint64{}, refused: map[string]refusal{}}
	a := c.path()
	switch c.IntN(12) {
	case 0:
		k.PutNode(nodeOf(2 + c.IntN(3)))
	case 1:
		k.DeleteNode(fmt.Sprintf("node-%d", 2+c.IntN(3)))
	case 2:
		p := prefix(c.one("10.99.1.0/24", "10.99.2.0/24", "fc00:0:2::/48"))
		h.PutReach(p, []bgp.Route{{Reach: overlay.Reach{Prefix: p, Address: nodeOf(2 + c.IntN(4)).Address}, Best: true}})
	case 3:
		h.WithdrawReach(prefix(c.one("10.99.1.0/24", "10.99.2.0/24", "fc00:0:2::/48")))
	case 4, 5, 6:
		h.Put(bgp.Path{Advertised: a, Source: bgp.Source{ASN: 65001, Node: addr(c.one("10.0.0.1", "10.0.0.2"))}})
	case 7:
		h.Withdraw(a)
	case 8, 9, 10:
		k.PutPath(kube.Path{Name: c.one("a", "b", "c"), Origin: "configmap x", Advertised: a})
	default:
		k.WithdrawPath(c.one("a", "b", "c"))
	}
	return append(h.inbox.take(), k.inbox.take()...)[0]
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

// whole is what the whole way round makes of a state, in words that do not depend on
// the order in which things came.
func (d *daemon) whole(state *desired) (learned []string, wanted overlay.Wanted, err error) {
	full := *state
	full.learned, full.wanted, full.named, full.problems = nil, nil, nil, nil
	m := full.asMember(d.links)
	if _, err := m.index(); err != nil {
		return nil, overlay.Wanted{}, err
	}
	return inWords(m.learned), *m.wanted, d.validate(m.completed())
}

func inWords(list []resource) []string {
	var out []string
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s %s %+v", r.Ref, r.origin, r.value))
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

// TestNarrowIsWhole says whatever comes to mind to an agent, and looks at each step
// whether it has what it would have if all of it were made anew.
func TestNarrowIsWhole(t *testing.T) {
	const steps = 600
	narrow := 0
	for seed := range uint64(4) {
		dp := newFake()
		d, k := byKube(t, t.TempDir(), dp)
		k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
		k.inbox.push(hearing{apply: func(s *told) { s.self.Locator = prefix("fc00:0:1::/48") }})
		d.holds(t, "it is a member", func() bool { return d.desired.self.Name != "" })
		d.mu.Lock()
		d.desired.process.Limits.SegmentLists = 24 // is reached now and then
		d.mu.Unlock()
		c := chance{rand.New(rand.NewPCG(seed, 1)), d}
		for step := range steps {
			before := *d.desired
			var err, want error
			switch c.IntN(12) {
			case 0: // the network changes, and now and then the data path takes not all that follows
				dp.fails(c.one("", "", "policy node-2", "policy chosen"))
				d.update(c.network())
				dp.fails("")
				d.retry()
			case 1, 2:
				fragment := c.fragment(t)
				_, err = d.Add(context.Background(), fragment)
				want = d.wouldAdd(&before, fragment)
			default:
				e := c.event()
				if d.isNarrow(e) {
					narrow++
				}
				next := before
				next.told = before.told.clone()
				e.apply(&next.told)
				_, _, want = d.whole(&next)
				err = d.changeTold([]hearing{e})
			}
			if (err == nil) != (want == nil) {
				t.Fatalf("seed %d, step %d: %v, but the whole way round %v", seed, step, err, want)
			}
			d.checkWhole(t, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
	if narrow < steps/4 {
		t.Errorf("%d changes were narrow: the test says little of them", narrow)
	}
}

func (d *daemon) isNarrow(e hearing) bool {
	next := *d.desired
	next.told = d.desired.told.clone()
	e.apply(&next.told)
	if !e.paths {
		return false
	}
	_, ok := d.narrow(proposal{to: &next, touched: next.told.touchedRefs()})
	return ok
}

// wouldAdd says why the whole way round would refuse a fragment.
func (d *daemon) wouldAdd(before *desired, fragment *config.Config) error {
	next, _, err := before.withAPI(completed(fragment))
	if err != nil {
		return err
	}
	if _, _, err := d.whole(next); err != nil {
		return err
	}
	return next.asMember(d.links).standsAlone()
}

// checkWhole compares all that there is with what it would be.
func (d *daemon) checkWhole(t *testing.T, at string) {
	t.Helper()
	learned, wanted, err := d.whole(d.desired)
	if err != nil {
		t.Fatalf("%s: what is there cannot be: %v", at, err)
	}
	if got := inWords(d.desired.learned); !slices.Equal(got, learned) {
		t.Fatalf("%s: learned\n%s\nwant\n%s", at, strings.Join(got, "\n"), strings.Join(learned, "\n"))
	}
	is := *d.desired.wanted
	for _, w := range []*overlay.Wanted{&is, &wanted} { // in whatever order
		w.Routes = slices.SortedFunc(slices.Values(w.Routes), func(a, b overlay.Route) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	if !reflect.DeepEqual(is, wanted) {
		t.Fatalf("%s: wanted\n%+v\nwant\n%+v", at, is, wanted)
	}
	all := recompile(d.desired, d.desired.completed(), d.links, d.tables, nil)
	if !reflect.DeepEqual(all.policies, d.tables.policies) || !reflect.DeepEqual(all.steering, d.tables.steering) || all.lists != d.tables.lists {
		t.Fatalf("%s: tables\n%+v\nwant\n%+v", at, d.tables.policies, all.policies)
	}
	if !reflect.DeepEqual(d.dp.policies, d.tables.policies) {
		t.Fatalf("%s: the data path has\n%+v\nwant\n%+v", at, d.dp.policies, d.tables.policies)
	}
	for name, verdicts := range all.verdicts {
		for i, v := range verdicts {
			is := d.tables.verdicts[name][i]
			if is.Why, v.Why = "", ""; is != v { // why it is active depends on what was before
				t.Fatalf("%s: verdict on %s: %+v, want %+v", at, name, is, v)
			}
		}
	}
}
