package watch

import (
	"context"
	"encoding/hex"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api/apitest"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/config"
)

func fake(t *testing.T, example string) *apitest.Agent {
	t.Helper()
	c, err := config.Load(filepath.Join("../../../examples", example))
	if err != nil {
		t.Fatal(err)
	}
	return apitest.New(c)
}

// A reading that takes long is followed by a pause that is longer.
func TestPause(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: time.Second, time.Millisecond: time.Second, 5 * time.Millisecond: time.Second, 20 * time.Millisecond: 4 * time.Second} {
		if got := pause(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}

// Viewers share what is read.
func TestCellIsShared(t *testing.T) {
	var reads atomic.Int32
	c := &cell[int32]{read: func(time.Time) (int32, error) { return reads.Add(1), nil }}
	for range 50 {
		if v, err := c.get(); v != 1 || err != nil {
			t.Fatalf("%d, %v", v, err)
		}
	}
	c.next = time.Now()
	if v, _ := c.get(); v != 2 {
		t.Errorf("after the pause: reading %d", v)
	}
}

func TestMeter(t *testing.T) {
	m, start := meter{}, time.Now()
	count := func(after time.Duration, n uint64) *pb.Rate {
		m.begin(start.Add(after))
		return m.rate("x", agent.Counter{Packets: n, Bytes: 100 * n})
	}
	if r := count(0, 1000); r != nil {
		t.Errorf("the first reading has a rate: %v", r)
	}
	if r := count(2*time.Second, 1500); r.GetPackets() != 250 || r.GetBits() != 200000 {
		t.Errorf("500 packets of 100 octets in 2 s: %v", r)
	}
	if r := count(3*time.Second, 10); r != nil {
		t.Errorf("a counter that was set back has a rate: %v", r)
	}
	if r := count(5*time.Minute, 20); r != nil {
		t.Errorf("a rate over minutes: %v", r)
	}
}

// read is a picture of an agent.
func read(t *testing.T, a agent.Service) *picture {
	t.Helper()
	w := newTopology(a)
	w.ports = func() (map[string]traffic, error) { return map[string]traffic{}, nil }
	p, err := w.read(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for id, l := range p.links {
		if p.nodes[l.GetFrom()] == nil || p.nodes[l.GetTo()] == nil {
			t.Errorf("link %s leads nowhere", id)
		}
	}
	return p
}

func TestTopology(t *testing.T) {
	p := read(t, fake(t, "upf.yaml"))
	for id, want := range map[string]uint32{"port n3": 1, "port n4": 1, "port n6": 3, "port n9": 3, "node": 2, "smf smf.example": 0, "policy by-the-firewall": 4, "peer 192.0.2.100": 0} {
		if n := p.nodes[id]; n == nil || n.GetColumn() != want {
			t.Errorf("%s: %v, want column %d", id, n, want)
		}
	}
	if p.nodes["peer 192.0.2.101"].GetProblem() == "" || p.nodes["smf smf.example"].GetProblem() == "" || p.nodes["peer 192.0.2.100"].GetProblem() != "" {
		t.Error("a peer that does not answer has a problem, and no other")
	}
	on := func(group, link string) bool { return slices.Contains(p.links[link].GetGroups(), group) }
	for _, row := range []struct {
		group, link string
		want        bool
	}{
		{"slice a", "node > port n9", true}, {"slice a", "node > port n6", false}, {"slice a", "port n9 > policy by-the-firewall", false},
		{"slice b", "port n9 > policy by-the-firewall", true}, {"slice b", "peer 192.0.2.100 > port n3", true}, {"slice b", "smf smf.example > port n4", false},
	} {
		if got := on(row.group, row.link); got != row.want {
			t.Errorf("%s takes %s: %v", row.group, row.link, got)
		}
	}
	down := fake(t, "upf.yaml")
	down.Links = map[string]agent.LinkState{"n3": "down", "n6": "no_carrier"}
	for id, want := range map[string]string{"port n3": "it is down", "port n6": "it has no carrier", "port n4": ""} {
		if got := read(t, down).nodes[id].GetProblem(); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if cluster := read(t, fake(t, "overlay.yaml")); cluster.nodes["member node-2"] == nil || cluster.nodes["pods"] == nil {
		t.Errorf("a member of a cluster: %v", sortedKeys(cluster.nodes))
	}
	read(t, fake(t, "headend.yaml"))
	read(t, fake(t, "gtpu.yaml"))
}

// crowded has many policies.
type crowded struct{ *apitest.Agent }

func (c crowded) Policies() ([]agent.PolicyStatus, error) {
	all, err := c.Agent.Policies()
	for i := range 100 {
		p := all[0]
		p.Name = p.Name + string(rune('A'+i))
		all = append(all, p)
	}
	return all, err
}

// A crowd is drawn as one entry that counts it.
func TestCrowd(t *testing.T) {
	p := read(t, crowded{fake(t, "upf.yaml")})
	if n := p.nodes["more policies"]; n.GetName() != "77 more policies" {
		t.Errorf("101 policies: %v", n)
	}
}

// A stream sends what has changed, and what is gone.
func TestChanges(t *testing.T) {
	a := fake(t, "upf.yaml")
	w := New(a)
	changes := w.topology.changes()
	first, err := changes()
	if err != nil || first.GetStatus() == nil || len(first.GetTopology().GetNodes()) < 8 || len(first.GetTopology().GetGroups()) != 2 {
		t.Fatalf("%v, %v", first, err)
	}
	if again, err := changes(); err != nil || again.GetTopology() != nil || again.GetStatus() != nil {
		t.Errorf("nothing has changed: %v, %v", again, err)
	}
	c := a.Running()
	c.Interfaces = slices.DeleteFunc(c.Interfaces, func(in config.Interface) bool { return in.Name == "n6" })
	if _, err := a.Apply(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	w.topology.current.next = time.Time{}
	if next, err := changes(); err != nil || !slices.Contains(next.GetTopology().GetGone(), "port n6") {
		t.Errorf("without n6: %v, %v", next, err)
	}
}

// A session that ends is said to be gone; those of a list come without rules.
func TestSessions(t *testing.T) {
	b := apitest.NewBusy(fake(t, "upf.yaml"), 2)
	w := New(b)
	changes, release := w.sessionChanges([]uint64{1, 2, 3})
	m, err := changes()
	if err != nil || len(m.GetSessions()) != 3 || !m.GetSessions()[2].GetGone() || m.GetSessions()[0].GetSession().GetRules() != "" {
		t.Errorf("%v, %v", m, err)
	}
	release()
	if len(w.sessions.cells) != 0 {
		t.Errorf("%d sessions are read for nobody", len(w.sessions.cells))
	}
	changes, release = w.sessionChanges([]uint64{2})
	defer release()
	if m, err = changes(); err != nil || m.GetSessions()[0].GetSession().GetRules() == "" || len(m.GetSessions()[0].GetPdrs()) != 2 {
		t.Errorf("one: %v, %v", m, err)
	}
	err = w.Watch(t.Context(), &pb.WatchRequest{View: "sessions", Seids: make([]uint64, 101)}, nil)
	if list, ok := errors.AsType[config.Errors](err); !ok || list[0].Field != "seids" {
		t.Errorf("101 sessions: %v", err)
	}
	if list, ok := errors.AsType[config.Errors](w.Watch(t.Context(), &pb.WatchRequest{View: "x"}, nil)); !ok || list[0].Field != "view" {
		t.Errorf("an unknown view: %v", err)
	}
}

// Drops are kept over time, and a trace for examples gives way to others.
func TestDrops(t *testing.T) {
	a := fake(t, "upf.yaml")
	d := newDrops(a)
	start := time.Now()
	dropped := func(n uint64) []agent.Outcome {
		return []agent.Outcome{{Reason: "HOP_LIMIT", Drop: true, Counter: agent.Counter{Packets: n}}, {Reason: "FORWARDED", Counter: agent.Counter{Packets: 10 * n}}}
	}
	d.sample(start, dropped(5))
	d.sample(start.Add(10*time.Second), dropped(25))
	d.sample(start.Add(20*time.Second), dropped(25))
	samples, _ := d.after(time.Time{})
	if len(samples) != 2 || samples[0].GetPackets()["HOP_LIMIT"] != 20 || len(samples[1].GetPackets()) != 0 {
		t.Errorf("samples: %v", samples)
	}
	d.sample(start.Add(2*time.Hour), dropped(25))
	if samples, _ = d.after(time.Time{}); len(samples) != 1 {
		t.Errorf("%d samples of two hours ago are kept", len(samples)-1)
	}
	d.look(t.Context())
	if len(a.Filters) != 0 {
		t.Error("a trace runs although nothing is dropped")
	}
}

// A capture explains packets, and ends.
func TestCapture(t *testing.T) {
	a := fake(t, "upf.yaml")
	e := agent.TraceEvent{Interface: "n3", Egress: "n6", Reason: "FORWARDED", InLength: 118, In: apitest.GPDU(1), OutLength: 70, Out: apitest.GPDU(1)[62:], Session: 9, PDR: 2}
	for range 2 * MostPackets {
		a.Events = append(a.Events, e)
	}
	var got []*pb.CaptureResponse
	err := New(a).Capture(t.Context(), &pb.CaptureRequest{Filter: &pb.TraceRequest{Drops: false}}, func(m *pb.CaptureResponse) error {
		got = append(got, m)
		return nil
	})
	if err != nil || len(got) != MostPackets {
		t.Fatalf("%d packets, %v", len(got), err)
	}
	var names []string
	for _, s := range got[0].GetSteps() {
		names = append(names, s.GetName())
	}
	if !slices.Equal(names, []string{"in", "session", "out"}) || got[0].GetSteps()[1].GetText() != "0x9 PDR 2" {
		t.Errorf("steps: %v", got[0].GetSteps())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(a).Capture(ctx, &pb.CaptureRequest{Filter: &pb.TraceRequest{Interface: "no"}}, nil); err == nil {
		t.Error("an unknown interface is taken")
	}
}

// What is no packet is refused by the field that has it.
func TestExplain(t *testing.T) {
	a := fake(t, "upf.yaml")
	a.Events = []agent.TraceEvent{{Reason: "FORWARDED", Egress: "n6"}}
	w := New(a)
	frame := apitest.GPDU(7)
	got, err := w.Explain(&pb.ExplainPacketsRequest{Interface: "n3", Frames: [][]byte{frame}, Text: hex.EncodeToString(frame)})
	if err != nil || len(got.GetPackets()) != 2 || got.GetPackets()[1].GetPacket().GetInterface() != "n3" || len(got.GetPackets()[1].GetSteps()) == 0 {
		t.Errorf("%v, %v", got, err)
	}
	for field, r := range map[string]*pb.ExplainPacketsRequest{
		"interface": {Frames: [][]byte{frame}},
		"frames":    {Interface: "n3"},
		"frames[1]": {Interface: "n3", Frames: [][]byte{frame, frame[:13]}},
		"text":      {Interface: "n3", Text: "hello"},
		"frames:":   {Interface: "n3", Frames: slices.Repeat([][]byte{frame}, MostPackets+1)},
	} {
		var wrong config.Errors
		if _, err := w.Explain(r); !errors.As(err, &wrong) || wrong[0].Field != strings.TrimSuffix(field, ":") || wrong[0].Fix == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}
