package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// random makes a valid configuration out of a small world of names, TEIDs and
// SIDs, so that two of them collide in every way that there is.
func random(r *rand.Rand) *config.Config {
	c := &config.Config{}
	some := func() bool { return r.IntN(2) == 0 }
	for i := range 3 {
		if some() {
			c.Interfaces = append(c.Interfaces, config.Interface{Name: fmt.Sprintf("eth%d", i), Roles: []config.Role{config.RoleAny}, Mode: []string{"native", "generic"}[r.IntN(2)]})
		}
		if some() {
			c.Locators = append(c.Locators, config.Locator{Name: fmt.Sprintf("l%d", i), Prefix: prefix(fmt.Sprintf("fc00:%d::/48", r.IntN(4)))})
		}
	}
	if some() {
		c.Spread = config.Spread{By: []string{"off", "ue", "flow"}[r.IntN(3)], CPUs: config.CPUs{r.IntN(3)}, Method: []string{"", "xdp", "card", "auto"}[r.IntN(4)]}
	}
	bindings := r.Perm(4)
	for i := range 4 {
		if !some() {
			continue
		}
		p := srpolicy.Policy{Name: fmt.Sprintf("p%d", i)}
		if some() {
			p.BindingSID = addr(fmt.Sprintf("fc00::%d", bindings[i]+1))
			bindings[i] = -1
		}
		for range r.IntN(2) + 1 {
			p.SegmentLists = append(p.SegmentLists, srpolicy.SegmentList{Segments: []netip.Addr{addr(fmt.Sprintf("fc01::%d", r.IntN(9)+1))}})
		}
		c.Policies = append(c.Policies, p)
	}
	randomSIDs(r, c, bindings)
	randomTunnels(r, c)
	return c
}

func randomSIDs(r *rand.Rand, c *config.Config, free []int) {
	for _, b := range free {
		if b < 0 || r.IntN(2) == 0 {
			continue
		}
		s := srv6.LocalSID{SID: prefix(fmt.Sprintf("fc00::%d/128", b+1)), Behavior: srv6.End}
		if len(c.Policies) > 0 && r.IntN(2) == 0 {
			p := c.Policies[r.IntN(len(c.Policies))]
			s.Behavior, s.Policy = p.BindingBehavior(), p.Name
		}
		c.SIDs = append(c.SIDs, s)
	}
	for i := range 4 {
		if len(c.Policies) > 0 && r.IntN(2) == 0 {
			c.Steering = append(c.Steering, srpolicy.Steering{
				Prefix: prefix(fmt.Sprintf("10.%d.0.0/16", i)), Policy: c.Policies[r.IntN(len(c.Policies))].Name,
			})
		}
	}
}

func randomTunnels(r *rand.Rand, c *config.Config) {
	teids := r.Perm(6)
	var senders []string
	for i := range 5 {
		if r.IntN(2) == 0 {
			continue
		}
		t := gtpu.Tunnel{Name: fmt.Sprintf("t%d", i)}
		if r.IntN(4) != 0 {
			t.Remote, t.RemoteTEID = addr("192.0.2.1"), r.Uint32()
			senders = append(senders, t.Name)
		}
		if !t.Remote.IsValid() || r.IntN(2) == 0 {
			t.LocalTEID = uint32(teids[i] + 1)
			t.Decapsulate = true
		}
		c.Tunnels = append(c.Tunnels, t)
	}
	for i := range c.Tunnels {
		t := &c.Tunnels[i]
		if t.LocalTEID == 0 {
			continue
		}
		switch {
		case len(senders) > 0 && r.IntN(2) == 0:
			t.Decapsulate, t.SwitchTo = false, senders[r.IntN(len(senders))]
		case len(c.Policies) > 0 && r.IntN(2) == 0:
			t.Decapsulate, t.Policy = false, c.Policies[r.IntN(len(c.Policies))].Name
		}
	}
	for i, name := range senders {
		if r.IntN(2) == 0 {
			c.Steering = append(c.Steering, srpolicy.Steering{Prefix: prefix(fmt.Sprintf("10.1%d.0.0/16", i)), Tunnel: name})
		}
	}
}

func compiled(c *config.Config) *plan.Tables {
	g := (&plan.Goal{}).WithFile(desired.Completed(c))
	return plan.Compile(g, g.Config(plan.Scope{}), links("eth0", "eth1", "eth2"), nil, plan.Scope{})
}

func writerOf(dp *fakeDataPath) *apply.Writer {
	return apply.NewWriter(&dp.joined().DataPath, nil, slog.New(slog.DiscardHandler))
}

// From any state to any other, in an order that the data path accepts; and
// when any one step fails, back to exactly what was there.
func TestPlanReachesEveryStateFromEveryOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dp := newFake()
	w := writerOf(dp)
	failed := 0
	for round := range 300 {
		after := compiled(random(r))
		list := plan.Steps(w.Tables, after, plan.Scope{}, false)
		for i := range list {
			content := dp.content()
			dp.failAt(i)
			err := w.Commit(after, plan.Scope{}, nil)
			dp.failAt(-1)
			if err == nil || !strings.Contains(err.Error(), list[i].Ref.String()+": "+errTest.Error()) {
				t.Fatalf("round %d: step %d (%s) failed, the error is %v", round, i, list[i].Ref, err)
			}
			if strings.Contains(err.Error(), "take back") {
				t.Fatalf("round %d: step %d (%s): %v", round, i, list[i].Ref, err)
			}
			if got := dp.content(); got != content {
				t.Fatalf("round %d: step %d (%s) failed; the tables were\n%s\nand are\n%s", round, i, list[i].Ref, content, got)
			}
			failed++
		}
		if err := w.Commit(after, plan.Scope{}, nil); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		fresh := newFake()
		if err := writerOf(fresh).Commit(after, plan.Scope{}, nil); err != nil {
			t.Fatalf("round %d, from nothing: %v", round, err)
		}
		if got, want := dp.content(), fresh.content(); got != want {
			t.Fatalf("round %d: the tables are\n%s\nwant\n%s", round, got, want)
		}
		if again := plan.Steps(after, after, plan.Scope{}, false); len(again) != 0 {
			t.Fatalf("round %d: %d steps from a state to itself, the first: %s", round, len(again), again[0].Ref)
		}
	}
	if failed < 1000 {
		t.Fatalf("only %d steps were made to fail: the states are too alike", failed)
	}
}

var errTest = errors.New("refused by the test")

// failAt has the write of step i fail before it does anything; -1: none. An
// interface is attached by two calls, of which the first one fails.
func (f *fakeDataPath) failAt(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failOn = nil
	if i < 0 {
		return
	}
	n := -1
	f.failOn = func(call string) error {
		second := strings.HasPrefix(call, "delete port") // with the detach before it
		if !second && !strings.HasPrefix(call, "attach") {
			n++
		}
		if n == i && !strings.HasPrefix(call, "attach") {
			return errTest
		}
		return nil
	}
}

// Where old and new do not want the same TEID or SID, nothing old goes before
// everything new is there.
func TestPlanDeletesAfterItPuts(t *testing.T) {
	before := compiled(&config.Config{
		Policies: []srpolicy.Policy{{Name: "old", SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{addr("fc01::1")}}}}},
		SIDs:     []srv6.LocalSID{{SID: prefix("fc00::1/128"), Behavior: srv6.EndB6EncapsRed, Policy: "old"}},
	})
	after := compiled(&config.Config{
		Policies: []srpolicy.Policy{{Name: "new", SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{addr("fc01::1")}}}}},
		SIDs:     []srv6.LocalSID{{SID: prefix("fc00::2/128"), Behavior: srv6.EndB6EncapsRed, Policy: "new"}},
	})
	dp := newFake()
	w := writerOf(dp)
	if err := w.Commit(before, plan.Scope{}, nil); err != nil {
		t.Fatal(err)
	}
	dp.log()
	if err := w.Commit(after, plan.Scope{}, nil); err != nil {
		t.Fatal(err)
	}
	want := "[policy new sid fc00::2/128 delete sid fc00::1/128 delete policy old]"
	if got := fmt.Sprint(dp.log()); got != want {
		t.Errorf("calls are %s, want %s", got, want)
	}
}
