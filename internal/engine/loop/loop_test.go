package loop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

// Two ways from a to d: the IGP's by b, and another by c.
const square = `
nodes:
  - {name: a, sid: "fc00:a::1", locator: "fc00:a::/32"}
  - {name: b, sid: "fc00:b::1", locator: "fc00:b::/32"}
  - {name: c, sid: "fc00:c::1", locator: "fc00:c::/32"}
  - {name: d, sid: "fc00:d::1", locator: "fc00:d::/32"}
links:
  - {from: a, to: b, capacity: 1Gbit}
  - {from: b, to: d, capacity: 1Gbit}
  - {from: a, to: c, metric: 20, capacity: 1Gbit}
  - {from: c, to: d, metric: 20, capacity: 1Gbit}
`

// node is a headend without a daemon. Its policies lead to d, and a time makes them send.
type node struct {
	mu       sync.Mutex
	policies []headend.Policy
	paths    map[string]srpolicy.CandidatePath // by name
	puts     int
	err      error  // of Put
	silent   error  // of Policies
	dead     string // the key of a list that cannot be used
	late     string // the path whose lists are above its delay bound
}

func (n *node) Policies(context.Context) ([]headend.Policy, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent != nil {
		return nil, n.silent
	}
	list := slices.Clone(n.policies)
	for i := range list {
		own := []srpolicy.Candidate{}
		for _, name := range slices.Sorted(maps.Keys(n.paths)) {
			if n.paths[name].Policy == list[i].Name {
				own = append(own, srpolicy.Candidate{CandidatePath: n.paths[name]})
			}
		}
		slow := srpolicy.Standings{srpolicy.PathKey(list[i].Name, n.late): {}}
		for _, l := range n.paths[n.late].SegmentLists {
			slow[srpolicy.PathKey(list[i].Name, n.late)][l.Key()] = srpolicy.Standing{Above: true}
		}
		p, verdicts := srpolicy.Choose(srpolicy.Policy{Name: list[i].Name, SegmentLists: list[i].Lists, DelayConstraint: list[i].Delays}, own, "",
			n.usable, slow)
		list[i].Lists, list[i].Paths = p.SegmentLists, verdicts
	}
	return list, nil
}

func (n *node) usable(l srpolicy.SegmentList) error {
	if l.Key() == n.dead {
		return errors.New("no route")
	}
	return nil
}

func (n *node) PathName(engine string, p headend.Policy) string { return engine + ":" + p.Name }

func (n *node) Put(_ context.Context, paths []headend.Path) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	n.puts++
	for _, c := range paths {
		n.paths[c.Name] = c.CandidatePath
	}
	return nil
}

// send is what policies send from now on until a time, in bit/s each.
func (n *node) send(over time.Duration, rates ...float64) {
	for i, rate := range rates {
		n.policies[i].Octets += uint64(rate / 8 * over.Seconds())
	}
}

// world is a network with one headend, a, and the time.
type world struct {
	t    *testing.T
	a    *node
	in   Input
	fail error // of the source
}

func newWorld(t *testing.T) *world {
	n, err := netfile.Parse([]byte(square))
	if err != nil {
		t.Fatal(err)
	}
	end := netip.MustParseAddr("fc00:d::d1")
	policy := func(name string, color uint32) headend.Policy {
		return headend.Policy{Name: name, Color: color, Endpoint: end, Lists: []srpolicy.SegmentList{{Segments: []netip.Addr{end}}}}
	}
	w := &world{t: t, a: &node{policies: []headend.Policy{policy("red", 1), policy("blue", 2)}, paths: map[string]srpolicy.CandidatePath{}}}
	w.in = Input{Network: n.Values(), Headends: map[string]headend.Headend{"a": w.a}, Settings: Settings{
		Apply: true, Every: 10 * time.Second, Hold: time.Minute, Target: 0.65, Changes: 20, Preference: 150, Name: "te"}}
	return w
}

func (w *world) engine() *Engine {
	return New(func(context.Context) (Input, error) { return w.in, w.fail }, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// in runs a test in a bubble, where time is that of the test alone.
func in(t *testing.T, f func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// round lets 10 s pass, in which policies send at these rates, and does a round of each engine.
func (w *world) round(red, blue float64, engines ...*Engine) (last State) {
	w.t.Helper()
	time.Sleep(10 * time.Second)
	w.a.send(10*time.Second, red, blue)
	for _, e := range engines {
		last = e.Round(w.t.Context(), time.Now())
	}
	return last
}

func (w *world) path(name string) string {
	var words []string
	for _, l := range w.a.paths[name].SegmentLists {
		var sids []string
		for _, s := range l.Segments {
			sids = append(sids, s.String())
		}
		words = append(words, strings.Join(sids, ","))
	}
	return strings.Join(words, "; ")
}

func TestLoop(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		e := w.engine()
		if s := w.round(6e8, 6e8, e); len(s.Unknown) != 2 || s.Plan == nil || w.a.puts != 0 || !strings.Contains(s.Word, "not known yet") {
			t.Fatalf("first round: %+v", s)
		}
		s := w.round(6e8, 6e8, e)
		if s.Problem != "" || len(s.Plan.Moves) != 1 || w.a.puts != 1 || s.Counts.Changes != 1 {
			t.Fatalf("the link is 120 %% full: %+v", s)
		}
		name := "te:" + map[uint32]string{1: "red", 2: "blue"}[s.Plan.Moves[0].Color]
		if got := w.path(name); got != "fc00:c::1,fc00:d::d1" || w.a.paths[name].Preference != 150 {
			t.Errorf("path %s is %q", name, got)
		}
		if s = w.round(6e8, 6e8, e); len(s.Plan.Moves) != 0 || w.a.puts != 1 || s.Plan.Now > 0.61 || len(s.Held) != 1 || !strings.Contains(s.Held[0].Why, "less than 1m0s ago") {
			t.Errorf("then: %+v", s)
		}
		// An engine that starts again takes over what is there.
		again := w.engine()
		for range 10 {
			s = w.round(6e8, 6e8, again)
		}
		if w.a.puts != 1 || s.Plan.Now > 0.61 || s.Problem != "" {
			t.Errorf("after a restart: %d changes, %+v", w.a.puts, s)
		}
	})
}

// A demand that rises moves before a link is too full: the forecast is, and the state says both.
func TestForecast(t *testing.T) {
	for horizon, moves := range map[time.Duration]bool{0: false, 20 * time.Second: true} {
		in(t, func(t *testing.T, w *world) {
			w.in.Settings.Horizon = horizon
			e := w.engine()
			var s State
			for i := range 8 { // up to 280 + 335 Mbit/s
				s = w.round(210e6+10e6*float64(i), 265e6+10e6*float64(i), e)
			}
			if d := s.Demands[0]; s.Counts.Changes > 0 != moves || d.Measured > 0 != moves || moves && d.Rate < d.Measured+1e7 {
				t.Errorf("horizon %v: %+v, %+v", horizon, s.Counts, s.Demands)
			}
		})
	}
}

func TestApplyIsOff(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.in.Settings.Apply = false
		e := w.engine()
		w.round(6e8, 6e8, e)
		if s := w.round(6e8, 6e8, e); len(s.Plan.Moves) != 1 || w.a.puts != 0 || !strings.Contains(s.Word, "engine.apply is false") || s.Counts.Changes != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Paths of others that are preferred stay in use, and the engine plans around them.
func TestOthersPath(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.a.paths["mine"] = srpolicy.CandidatePath{Name: "mine", Policy: "red", Preference: 200, SegmentLists: w.a.policies[0].Lists}
		e := w.engine()
		w.round(6e8, 6e8, e)
		s := w.round(6e8, 6e8, e)
		if len(s.Plan.Moves) != 1 || s.Plan.Moves[0].Color != 2 || len(s.Held) != 1 || !strings.Contains(s.Held[0].Why, "candidate path mine of policy red has preference 200") {
			t.Errorf("%+v", s)
		}
	})
}

// Two engines of one name do not turn the same path to and fro: the one that sees the other's
// lists stands by.
func TestTwoEngines(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		e := w.engine()
		w.round(6e8, 6e8, e)
		w.round(6e8, 6e8, e)
		for name, c := range w.a.paths {
			c.SegmentLists = []srpolicy.SegmentList{{Segments: c.SegmentLists[0].Segments[1:]}}
			w.a.paths[name] = c // the other engine's lists
		}
		for range 5 {
			s := w.round(7e8, 7e8, e)
			if w.a.puts != 1 || len(s.Plan.Moves) > 0 && !strings.Contains(s.Problem, "another engine writes") {
				t.Fatalf("%d changes, %+v", w.a.puts, s)
			}
		}
		for range 4 {
			w.round(7e8, 7e8, e)
		}
		if w.a.puts != 2 {
			t.Errorf("nobody else has written for a minute: %d changes", w.a.puts)
		}
	})
}

// What is not known, or not done, is said, and lists stay.
func TestTroubles(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		e := w.engine()
		w.round(6e8, 6e8, e)
		w.a.err = errors.New("its disk is full")
		if s := w.round(6e8, 6e8, e); !strings.Contains(s.Problem, "step 1 of 1: a: its disk is full") || s.Counts.Failed != 1 || len(w.a.paths) != 0 {
			t.Errorf("the headend refuses: %+v", s)
		}
		w.a.err = nil
		for range 6 { // the demand is held for a minute
			w.round(6e8, 6e8, e)
		}
		if len(w.a.paths) != 1 {
			t.Errorf("it takes paths again, and has %d", len(w.a.paths))
		}
		w.a.silent = errors.New("connection refused")
		for range 4 {
			w.round(6e8, 6e8, e)
		}
		if s := w.round(6e8, 6e8, e); len(s.Failed) != 1 || len(s.Demands) != 2 || s.Demands[0].Rate < 5.9e8 || s.Plan.Now > 0.61 || len(s.Held) != 2 || s.Held[0].Why != "its headend does not answer" {
			t.Errorf("the headend does not answer: %+v", s)
		}
		w.fail = errors.New("network.yaml does not exist")
		if s := w.round(6e8, 6e8, e); s.Plan != nil || !strings.Contains(s.Problem, "does not exist") {
			t.Errorf("no network: %+v", s)
		}
	})
}

// Counters that jump back are no rates.
func TestCountersThatJumpBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		e := w.engine()
		w.round(3e8, 3e8, e)
		w.round(3e8, 3e8, e)
		w.a.policies[0].Octets = 0
		if s := w.round(3e8, 3e8, e); len(s.Plan.Moves) != 0 || s.Plan.Now > 0.61 || s.Plan.Now < 0.59 {
			t.Errorf("%+v", s)
		}
	})
}

// A link that comes and goes each round changes nothing but lists that lead nowhere.
func TestFlaps(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		e := w.engine()
		whole := w.in.Network.Topology
		without := te.Topology{Nodes: whole.Nodes, Links: slices.Clone(whole.Links[:4])} // without c
		w.round(4.5e8, 4.5e8, e)
		var s State
		for i := range 20 {
			if w.in.Network.Topology = whole; i%2 == 0 {
				w.in.Network.Topology = without
			}
			s = w.round(4.5e8, 4.5e8, e)
		}
		if w.a.puts != 0 || !strings.Contains(s.Word, "a link has returned") {
			t.Errorf("%d changes, %+v", w.a.puts, s)
		}
		w.in.Network.Topology = whole
		for range 16*6 + 1 {
			w.round(4.5e8, 4.5e8, e)
		}
		if w.a.puts != 1 {
			t.Errorf("the link has stayed for 16 minutes: %d changes", w.a.puts)
		}
	})
}

// The engine ends when it is told to.
func TestRun(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		e := w.engine()
		w.in.Settings.Every = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		for e.State().Counts.Rounds < 3 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
