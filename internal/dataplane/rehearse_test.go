package dataplane

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/policy"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// TestRehearse rehearses changes of policies before they are made: what it says is what happens,
// with next hops that several share, and lists that replace others.
func TestRehearse(t *testing.T) {
	limits := smallLimits
	limits.Adjacencies = 7
	d := openWith(t, Options{Limits: limits})
	must(t, d.SetSettings(testSettings()))
	random := rand.New(rand.NewPCG(1, 2))
	hop := func() netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fc00:9::%x", 1+random.IntN(10))) }
	has := map[string]srpolicy.Policy{}
	refused, made := 0, 0
	for range 600 {
		name := fmt.Sprintf("p%d", random.IntN(8))
		if old, ok := has[name]; ok && random.IntN(4) == 0 {
			if _, err := d.Adjacencies.Rehearse([]adjacency.Use{{Release: policy.Hops(old)}}); err != nil {
				t.Fatal(err)
			}
			must(t, d.Policies.Delete(name))
			delete(has, name)
			continue
		}
		next := srpolicy.Policy{Name: name}
		for range 1 + random.IntN(3) {
			next.SegmentLists = append(next.SegmentLists, srpolicy.SegmentList{Segments: []netip.Addr{hop()}, Weight: 1})
		}
		use := adjacency.Use{Acquire: policy.Hops(next)}
		if old, ok := has[name]; ok {
			use.Release = policy.Hops(old)
		}
		before := d.Adjacencies.Usage()
		_, said := d.Adjacencies.Rehearse([]adjacency.Use{use})
		if d.Adjacencies.Usage() != before {
			t.Fatal("the rehearsal changed the table")
		}
		err := d.Policies.Put(next)
		if (said == nil) != (err == nil) || said != nil && !strings.HasSuffix(err.Error(), said.Error()) {
			t.Fatalf("%+v: rehearsed %v, done %v", next, said, err)
		}
		if err != nil {
			refused++
			continue
		}
		made++
		has[name] = next
	}
	if refused < 50 || made < 50 {
		t.Errorf("%d were refused and %d made: too few of one", refused, made)
	}
	// Uses follow each other: what one gives up is room for the next.
	list := func(last int) (uses []adjacency.Use) {
		for i := range last {
			uses = append(uses, adjacency.Use{Acquire: []adjacency.Key{{NextHop: netip.MustParseAddr(fmt.Sprintf("fc00:8::%x", i+1))}}})
		}
		return uses
	}
	for name := range has {
		must(t, d.Policies.Delete(name))
	}
	if at, err := d.Adjacencies.Rehearse(list(8)); err == nil || at != 7 || err.Error() != "table adjacency is full (7 entries): a larger limits.adjacencies counts from the next start on" {
		t.Errorf("the eighth of seven: %d, %v", at, err)
	}
	with := list(8)
	with[6].Release = with[0].Acquire
	if _, err := d.Adjacencies.Rehearse(with); err != nil {
		t.Errorf("after one was given up: %v", err)
	}
}
