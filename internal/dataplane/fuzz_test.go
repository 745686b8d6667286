package dataplane

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/testutil/fuzzing"
)

var (
	fuzzFrames = flag.Int("frames", 20_000, "frames that TestFuzzAgainstModel runs")
	fuzzSeed   = flag.Uint64("seed", 1, "where TestFuzzAgainstModel starts")
	// Each world is one set of tables: programming them costs as much as some
	// ten thousand frames, and counters are compared once for each world.
	fuzzWorld = flag.Int("world", 0, "frames that TestFuzzAgainstModel runs with one set of tables; 0: as -frames suggests")
)

// basesPerWorld are the valid frames that mutations start from.
const basesPerWorld = 500

// framesPerChange are those between two changes of a session.
const framesPerChange = 1000

// world is a set of tables with the model of them.
type world struct {
	*rig
	t       *testing.T
	seed    uint64
	source  fuzzing.Source
	model   *model.Model
	bases   [][]byte
	counted model.Counts // since the last change
	punts   []event.Punt // that the model wants and that were not compared yet
	events  []model.Event
}

// TestFuzzAgainstModel runs frames, valid and mutated, through the loaded
// program and through the reference model, and demands the same verdict,
// bytes, counters and records for the slow path. `go test -run FuzzAgainstModel
// -frames 10000000 -seed N` goes on for longer.
func TestFuzzAgainstModel(t *testing.T) {
	if *fuzzWorld == 0 {
		*fuzzWorld = min(max(*fuzzFrames/20, 5_000), 50_000)
	}
	t.Logf("seed %d, %d frames, %d with each set of tables", *fuzzSeed, *fuzzFrames, *fuzzWorld)
	inNamespace(t, fuzzing.Ports, func() {
		r := newRig(t)
		for seed, left := *fuzzSeed, *fuzzFrames; left > 0 && !t.Failed(); seed, left = seed+1, left-*fuzzWorld {
			w := newWorld(t, r, seed)
			w.run(min(left, *fuzzWorld))
			if err := r.clear(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
}

func newWorld(t *testing.T, r *rig, seed uint64) *world {
	t.Helper()
	w := &world{rig: r, t: t, seed: seed, source: fuzzing.New(seed)}
	network, err := w.source.Network()
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if w.model, err = model.New(network); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if err := r.program(network); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return w
}

// run runs frames until the first that differs, and changes a session now and
// then.
func (w *world) run(frames int) {
	w.bases = make([][]byte, basesPerWorld)
	w.renew(0)
	for ; frames > 0 && !w.t.Failed(); frames -= framesPerChange {
		w.runSome(min(frames, framesPerChange))
		w.change()
		w.renew(basesPerWorld * 9 / 10)
	}
}

// renew replaces frames from one on.
func (w *world) renew(first int) {
	w.source.Shuffle(len(w.bases), func(i, j int) { w.bases[i], w.bases[j] = w.bases[j], w.bases[i] })
	for i := first; i < len(w.bases); i++ {
		w.bases[i] = w.source.Frame(&w.network)
		if w.source.IntN(20) == 0 {
			w.bases[i] = w.source.Noise()
		}
	}
}

// change changes a session both ways.
func (w *world) change() {
	s := w.source.Changed(&w.network)
	if err := errors.Join(w.changeSession(s), w.model.PutSession(s)); err != nil {
		w.t.Errorf("seed %d: session %d: %v\n%+v", w.seed, s.ID, err, s)
	}
}

// runSome runs frames, and compares what all of them come to.
func (w *world) runSome(frames int) {
	w.counted = model.Counts{}
	before := w.counters(w.t)
	type ran struct {
		frame   []byte
		ifindex int
	}
	all := make([]ran, 0, frames)
	for range frames {
		base := w.bases[w.source.IntN(len(w.bases))]
		mutations := w.source.Mutations(len(base))
		frame := fuzzing.Mutate(base, mutations)
		ifindex := fuzzing.Ports[w.source.IntN(len(fuzzing.Ports))].Ifindex
		if len(frame) < 14 {
			continue
		}
		if difference := w.compare(frame, ifindex); difference != "" {
			w.report(base, mutations, ifindex)
			return
		}
		all = append(all, ran{frame, ifindex})
	}
	w.comparePunts()
	w.compareEvents()
	if cmp.Equal(w.counted, since(before, w.counters(w.t))) && !w.t.Failed() {
		w.sumUp(before, len(all))
		return
	}
	// Somewhere above a counter or a record went wrong: once more, frame by
	// frame.
	for _, r := range all {
		if difference := w.compareAll(r.frame, r.ifindex); difference != "" {
			w.t.Errorf("seed %d: interface %d, frame %x\n%s", w.seed, r.ifindex, r.frame, difference)
			return
		}
	}
	w.t.Errorf("seed %d: counters (-model +program):\n%s", w.seed, cmp.Diff(w.counted, since(before, w.counters(w.t))))
}

// compare runs one frame both ways. It says how verdict and bytes differ, and
// keeps for later what counters and records must come to.
func (w *world) compare(frame []byte, ifindex int) string {
	want := w.model.Run(frame, ifindex)
	verdict, out, err := w.d.Frames.Test(frame, ifindex)
	if err != nil {
		return err.Error()
	}
	w.counted.Add(want.Counts)
	w.expect(want, ifindex)
	if v := wantVerdict(want); verdict != v {
		return fmt.Sprintf("model: %s (%s), program: %s", xdp.VerdictName(v), want.Reason, xdp.VerdictName(verdict))
	}
	if verdict != xdp.VerdictDrop && !bytes.Equal(out, want.Out) {
		return fmt.Sprintf("model:   %x\nprogram: %x\n%s", want.Out, out, cmp.Diff(fields(want.Out), fields(out)))
	}
	return ""
}

func wantVerdict(r model.Result) uint32 {
	switch {
	case r.Reason == model.Passed:
		return xdp.VerdictPass
	case r.Reason == model.Replied, r.Reason == model.Forwarded:
		return xdp.VerdictRedirect
	}
	return xdp.VerdictDrop
}

// fields cuts a frame into 16 octets a line, for a difference one can read.
func fields(b []byte) []string {
	var lines []string
	for at := 0; at < len(b); at += 16 {
		lines = append(lines, fmt.Sprintf("%4d: %x", at, b[at:min(at+16, len(b))]))
	}
	return lines
}

func (w *world) expect(r model.Result, ifindex int) {
	w.events = append(w.events, r.Events...)
	for _, p := range punts(r) {
		w.punts = append(w.punts, meaningful(event.Punt{Kind: puntKinds[p.Kind], Ifindex: ifindex, Info: p.Info, L3: p.L3, Rewritten: p.Rewritten,
			Type: p.Type, Code: p.Code, Session: p.Session, Rule: p.Rule, Data: p.Data}))
	}
	if len(w.punts) >= 500 { // well before the ring buffer is full
		w.comparePunts()
	}
}

// punts are all records of a result, in their order.
func punts(r model.Result) []*model.Punt {
	if r.Punt == nil {
		return r.Copies
	}
	return append(slices.Clone(r.Copies), r.Punt)
}

// compareEvents compares those that were told.
func (w *world) compareEvents() {
	if got := w.takeEvents(len(w.events)); !slices.Equal(w.events, got) {
		w.t.Errorf("seed %d: events (-model +program):\n%s", w.seed, cmp.Diff(w.events, got))
	}
	w.events = nil
}

// comparePunts compares the records so far, in their order.
func (w *world) comparePunts() {
	got := w.takePunts(len(w.punts))
	for i := range got {
		got[i] = meaningful(got[i])
	}
	if !slices.EqualFunc(w.punts, got, samePunt) {
		w.t.Errorf("seed %d: records for the slow path: model %d, program %d; the first that differs:\n%s",
			w.seed, len(w.punts), len(got), firstDifference(w.punts, got))
	}
	w.punts = nil
}

// samePunt is what cmp.Equal would say, at a hundredth of its cost.
func samePunt(a, b event.Punt) bool {
	return a.Kind == b.Kind && a.Ifindex == b.Ifindex && a.Info == b.Info && a.L3 == b.L3 &&
		a.Type == b.Type && a.Code == b.Code && a.Session == b.Session && a.Rule == b.Rule && bytes.Equal(a.Data, b.Data)
}

func firstDifference(want, got []event.Punt) string {
	for i := range min(len(want), len(got)) {
		if !samePunt(want[i], got[i]) {
			return fmt.Sprintf("%x\n%s", want[i].Data, cmp.Diff(want[i], got[i], sameAddr))
		}
	}
	return "one has more than the other"
}

// compareAll compares one frame with its counters and record.
func (w *world) compareAll(frame []byte, ifindex int) string {
	before := w.counters(w.t)
	want := w.model.Run(frame, ifindex)
	if _, _, err := w.d.Frames.Test(frame, ifindex); err != nil {
		return err.Error()
	}
	if d := cmp.Diff(want.Counts, since(before, w.counters(w.t))); d != "" {
		return "counters (-model +program):\n" + d
	}
	wanted := len(punts(want))
	if got := w.takePunts(wanted); len(got) != wanted {
		return fmt.Sprintf("%d records for the slow path, want %d", len(got), wanted)
	}
	return ""
}

// report finds the fewest mutations with which the frame still differs.
func (w *world) report(base []byte, mutations []fuzzing.Mutation, ifindex int) {
	for i := 0; i < len(mutations); {
		fewer := slices.Delete(slices.Clone(mutations), i, i+1)
		if frame := fuzzing.Mutate(base, fewer); len(frame) >= 14 && w.compare(frame, ifindex) != "" {
			mutations = fewer
			continue
		}
		i++
	}
	frame := fuzzing.Mutate(base, mutations)
	for n := len(frame) - 1; n >= 14 && w.compare(frame[:n], ifindex) != ""; n-- {
		frame = frame[:n]
	}
	names := []string{"none"}
	if len(mutations) > 0 {
		names = nil
	}
	for _, m := range mutations {
		names = append(names, m.Name)
	}
	before := w.counters(w.t)
	difference := w.compare(frame, ifindex)
	w.t.Errorf("seed %d (again: -seed %[1]d -world %[2]d -frames %[2]d): interface %[3]d, mutations: %[4]s\nframe %[5]x\n%[6]s\nwhat the program counted: %[7]v\nwhat the model counts: %[8]v\n%[9]s",
		w.seed, *fuzzWorld, ifindex, strings.Join(names, "; "), frame, difference, since(before, w.counters(w.t)),
		w.model.Run(frame, ifindex).Counts, w.about(frame))
}

// about are the entries of the configuration that the frame's destination is
// in.
func (w *world) about(frame []byte) string {
	var b strings.Builder
	for _, s := range w.network.Config.SIDs {
		octets := s.SID.Addr().As16()
		if bytes.Contains(frame, octets[:s.SID.Bits()/8]) {
			fmt.Fprintf(&b, "%+v\n", s)
		}
	}
	return b.String()
}

// sumUp: every frame ended in exactly one way (in = out + drops).
func (w *world) sumUp(before model.Counts, frames int) {
	var sum uint64
	for name, c := range since(before, w.counters(w.t)) {
		if outcomeNames[name] {
			sum += c.Packets
		}
	}
	if sum != uint64(frames) {
		w.t.Errorf("seed %d: %d frames in, %d outcomes", w.seed, frames, sum)
	}
}

var outcomeNames = func() map[string]bool {
	names := map[string]bool{}
	for _, r := range reason.All() {
		names[model.OutcomeName(model.Reason(r.String()))] = true
	}
	return names
}()
