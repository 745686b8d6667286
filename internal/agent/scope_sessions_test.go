package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/liveness"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// classedSlices is a UPF whose slices, and the QoS flows in them, have policies of several colors.
const classedSlices = `
interfaces: [{name: eth0, roles: [n3, n4], peers: any}, {name: eth1, roles: [n6]}]
encapsulation: {source: "fc00::1"}
policies:
  - {name: south, color: 10, endpoint: "fc00:3::9", segment_lists: [{segments: ["fc00:2::1", "fc00:3::1"]}]}
  - {name: north, color: 100, endpoint: "fc00:3::9", segment_lists: [{segments: ["fc00:4::1", "fc00:3::1"]}]}
  - {name: east, color: 10, endpoint: "fc00:5::9", segment_lists: [{segments: ["fc00:5::1"]}]}
gtpu: {addresses: [192.0.2.2]}
upf:
  n4: [192.0.2.1]
  smfs: [127.92.0.0/24]
slices:
  - {name: a, snssai: {sst: 1}, n9: {transport: srv6, mode: enhanced, uplink_policy: south, downlink_policy: north}}
  - {name: b, snssai: {sst: 2}, n9: {transport: srv6, mode: enhanced, uplink_policy: east}}
steering: [{prefix: 10.99.0.0/16, policy: south}]
traffic_classes:
  - {name: voice, color: 100, match: {slices: [a], qfis: [1, 9]}}
  - {name: alarm, color: 4, strict: true, match: {qfis: [5]}}
  - {name: video, color: 6, priority: 5, match: {slices: [b]}}
  - {name: office, color: 100, match: {interfaces: [eth1], dscp: [46]}}
`

// sessionChance makes what others say of the paths of that UPF.
type sessionChance struct{ *rand.Rand }

func (c sessionChance) one(list ...string) string { return list[c.IntN(len(list))] }

// lists are segment lists; some end where others do not, or lead nowhere.
func (c sessionChance) lists() (out []srpolicy.SegmentList) {
	for range 1 + c.IntN(2) {
		out = append(out, srpolicy.SegmentList{Weight: 1, Segments: []netip.Addr{addr(c.one("fc00:2::1", "fc00:4::1", "fc00:7::1")), addr(c.one("fc00:3::1", "fc00:3::1", "fc00:3::2"))}})
	}
	return out
}

func (c sessionChance) path() srpolicy.Advertised {
	color := []uint32{4, 6, 10, 100}[c.IntN(4)]
	return srpolicy.Advertised{Color: color, Endpoint: addr(c.one("fc00:3::9", "fc00:3::9", "fc00:5::9")), Distinguisher: uint32(c.IntN(2)),
		Preference: uint32(50 + c.IntN(3)*100), SegmentLists: c.lists()}
}

// say has somebody say something: BGP or Kubernetes of a path, the API of a path or a policy,
// probes of lists, the kernel of routes. It says how.
func (c sessionChance) say(t *testing.T, d *daemon) string {
	q := observed.NewQueue()
	h, err := observed.NewBGP(observed.Config{}, &observed.State{}, q, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k := observed.NewKubernetes(observed.Config{}, nil, q, slog.New(slog.DiscardHandler))
	observe := func() { _, _ = d.core.observeAll(q.Take()) } // what cannot be changes nothing
	a := c.path()
	switch c.IntN(9) {
	case 0, 1, 2:
		h.Put(bgp.Path{Advertised: a, Source: bgp.Source{ASN: 65001, Node: addr("10.0.0.1")}})
		observe()
		return fmt.Sprintf("BGP: %+v", a)
	case 3:
		h.Withdraw(a)
		observe()
		return fmt.Sprintf("BGP withdraws %+v", a)
	case 4:
		k.PutPath(kube.Path{Name: c.one("a", "b"), Origin: "srv6policy x", Advertised: a})
		observe()
		return fmt.Sprintf("Kubernetes: %+v", a)
	case 5:
		k.WithdrawPath(c.one("a", "b"))
		observe()
		return "Kubernetes withdraws"
	case 6:
		fragment := c.one(
			"candidate_paths: [{name: mine, policy: POLICY, preference: 300, segment_lists: [{segments: ['VIA', 'fc00:3::1']}]}]",
			"policies: [{name: gold, color: 4, endpoint: 'fc00:3::9', segment_lists: [{segments: ['VIA', 'fc00:3::1']}]}]",
			"policies: [{name: gold, color: 6, endpoint: 'fc00:5::9', segment_lists: [{segments: ['VIA', 'fc00:5::1']}]}]",
		)
		fragment = strings.NewReplacer("POLICY", c.one("north", "south", "east"), "VIA", c.one("fc00:2::1", "fc00:4::1", "fc00:7::1")).Replace(fragment)
		parsed, err := config.Decode([]byte(fragment))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = d.Add(context.Background(), parsed)
		return "API: " + fragment
	case 7:
		found := liveness.Found{Dead: map[string]string{}}
		for _, p := range d.core.goal.Probes() {
			if c.IntN(3) == 0 {
				found.Dead[p.List.Key()] = "no answer"
			}
		}
		d.core.turn(found)
		return fmt.Sprintf("dead: %v", found.Dead)
	default:
		s := c.network()
		d.core.update(s)
		return fmt.Sprintf("routes: %v", s.Routes)
	}
}

func (c sessionChance) network() *netdev.Snapshot {
	open := []string{"fc00:2::/32", "fc00:3::/32", "fc00:4::/32", "fc00:5::/32", "fc00:7::/32"}
	return towards(slices.DeleteFunc(open, func(string) bool { return c.IntN(5) == 0 })...)
}

// TestClassesOfSessionsAreWhole changes one path, one list, one policy or one route after the
// other. After each the policies of all slices and QoS flows are those of a whole new plan, and
// the data path has them.
func TestClassesOfSessionsAreWhole(t *testing.T) {
	const steps = 300
	turned := 0
	for seed := range uint64(4) {
		dp := newFake()
		d := prepareUPF(t, t.TempDir(), classedSlices, dp).start(t, towards("fc00:2::/32", "fc00:3::/32", "fc00:4::/32", "fc00:5::/32"))
		c := sessionChance{rand.New(rand.NewPCG(seed, 2))}
		for step := range steps {
			before := d.core.writer.Tables
			said := c.say(t, d)
			d.checkSessionWays(t, before, fmt.Sprintf("seed %d, step %d, %s", seed, step, said))
			if !maps.Equal(before.SessionWays, d.core.writer.Tables.SessionWays) {
				turned++
			}
		}
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if turned < steps/4 {
		t.Errorf("%d changes had sessions take other policies: the test says little of them", turned)
	}
}

// checkSessionWays plans all once more. Which of two equal paths is held ready depends on the
// tables before.
func (d *daemon) checkSessionWays(t *testing.T, before *plan.Tables, at string) {
	t.Helper()
	tables := d.core.writer.Tables
	whole := plan.Compile(d.core.goal, d.core.goal.Config(plan.Scope{}), d.core.links, before, plan.Scope{})
	if len(whole.SessionWays) == 0 {
		t.Fatal("no flow is in a class: the test compares nothing")
	}
	if !maps.Equal(whole.SessionWays, tables.SessionWays) || !maps.Equal(d.dp.sessionWays, tables.SessionWays) || !desired.Same(whole.Steering, tables.Steering) {
		t.Fatalf("%s:\ntables    %v\nwhole     %v\ndata path %v", at, tables.SessionWays, whole.SessionWays, d.dp.sessionWays)
	}
}
