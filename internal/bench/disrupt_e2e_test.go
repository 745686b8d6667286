//go:build e2e

package bench

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/disrupt"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// What is done while the data path stays is done there and back, and what replaces
// the daemon once: under a load that is held while others use the machine, no
// packet is lost. Other tests may keep the core that forwards, so an event that lost
// packets has more tries. In the last one packets may be lost that waited for that core
// in a queue that is full, and no others.
func TestDisrupt(t *testing.T) {
	needTwoCPUs(t)
	const tries = 5
	for rounds, events := range map[int][]string{2: {"configuration", "policy", "adjacency", "session", "rescale"}, 1: {"kill", "upgrade"}} {
		for try := 1; len(events) > 0; try++ {
			r, err := execute(t.Context(), t.TempDir(), "disrupt", "--quick", "--events", strings.Join(events, ","), "--rate", "0.005", "--rounds", strconv.Itoa(rounds))
			if err != nil {
				t.Fatal(err)
			}
			events = slices.DeleteFunc(events, func(event string) bool {
				if try < tries && disturbed(r, event) {
					return false
				}
				checkEvent(t, r, event, rounds)
				return true
			})
			nothingOf(t, device.CulvertDevice, "upf", "spread")
		}
	}
}

// disturbed says that packets of an event were lost or overtaken, or that the generator
// did not get to send any.
func disturbed(r *result.Run, event string) bool {
	label := result.Labels{"event": event}
	samples := func(metric string) []float64 { return r.Select(metric, label)[0].Samples }
	return slices.Max(samples("lost")) > 0 || slices.Max(samples("reordered")) > 0 || slices.Min(samples("longest_gap")) == 0
}

func checkEvent(t *testing.T, r *result.Run, event string, rounds int) {
	t.Helper()
	samples := func(metric string) []float64 {
		m := r.Select(metric, result.Labels{"event": event})
		if len(m) != 1 || len(m[0].Samples) != rounds {
			t.Errorf("%s of %s: %v, want %d samples", metric, event, m, rounds)
			return nil
		}
		return m[0].Samples
	}
	waiting := samples("lost_waiting")
	for i, n := range samples("lost") {
		if n > waiting[i] {
			t.Errorf("%s: %v packets lost, %v of them while they waited for the core", event, n, waiting[i])
		}
	}
	for _, n := range samples("reordered") {
		if n != 0 {
			t.Errorf("%s: %v packets reordered", event, n)
		}
	}
	for _, metric := range []string{"event_took", "longest_gap", "longest_gap_nothing_done", "held"} {
		for _, v := range samples(metric) {
			if v <= 0 {
				t.Errorf("%s of %s is %v", metric, event, v)
			}
		}
	}
	if len(samples("blocked")) != len(samples("blocked_nothing_done")) {
		t.Errorf("%s is not held against nothing done", event)
	}
}

// Handovers go on while the daemon is killed, restarted and replaced. The data path answers
// all in time; messages that a full queue had no room for do not count. The daemon does not.
func TestDisruptSignalling(t *testing.T) {
	needTwoCPUs(t)
	r, err := execute(t.Context(), t.TempDir(), "disrupt", "--quick", "--events", "signalling", "--rounds", "1")
	if err != nil {
		t.Fatal(err)
	}
	for _, fast := range []string{"on", "off"} {
		unanswered := 0.0
		for _, event := range []string{"nothing", "kill", "restart", "upgrade"} {
			value := func(metric string) float64 {
				m := r.Select(metric, result.Labels{"event": event, "n4_fast": fast})
				if len(m) != 1 || len(m[0].Samples) != 1 {
					t.Fatalf("%s, n4_fast %s: %s is %v, want 1 sample", event, fast, metric, m)
				}
				return m[0].Samples[0]
			}
			if value("n4_sent") == 0 || value("n4_longest_gap") <= 0 || value("n4_event_took") <= 0 {
				t.Errorf("%s, n4_fast %s: no request is sent, or it takes no time", event, fast)
			}
			late, full := value("n4_unanswered"), value("n4_queue_full")
			if fast == "on" && late > full {
				t.Errorf("%s: the data path left %v requests without an answer, and %v messages found the queue full", event, late, full)
			}
			if event != "nothing" {
				unanswered += late
			}
		}
		if fast == "off" && unanswered == 0 {
			t.Error("the daemon answers all in time while it is killed, restarted and replaced")
		}
		nothingOf(t, device.CulvertDevice, "n4-"+fast)
	}
}

// A device that is blocked is seen, also where it stays so: its routes go with the
// link.
func TestDisruptSeesWhatIsBlocked(t *testing.T) {
	needTwoCPUs(t)
	d := disrupt.New()
	d.Quick()
	d.Events = []string{"adjacency"}
	s := experiment.Setting{Culvert: culvert, BPFFS: "/sys/fs/bpf", CPU: -1, Warn: func(string, ...any) {}}
	opened, err := d.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
		nothingOf(t, device.CulvertDevice)
	}()
	b := opened.(*disrupt.Bench)
	pair, sent, err := b.OpenPair(t.Context(), b.Node)
	if err != nil {
		t.Fatal(err)
	}
	defer pair.Close()
	const dark = 200 * time.Millisecond
	o, took, err := b.During(t.Context(), b.Node, pair, sent, func(ctx context.Context) error {
		down := b.Node.Net.Node.Script("link set " + node.PortOut + " down")
		err := node.Wait(ctx, dark)
		return errors.Join(down, err, b.Node.Net.Node.Script("link set "+node.PortOut+" up"))
	})
	if err != nil {
		t.Fatal(err)
	}
	blocked := time.Duration(float64(o.Lost) / b.Rates[b.Node] * float64(time.Second))
	if o.Lost == 0 || blocked > o.Elapsed || o.LongestGap < dark/2 || o.LongestGap > o.Elapsed {
		t.Errorf("dark for %s of %s: %d packets lost, %s; longest gap %s", dark, took, o.Lost, blocked, o.LongestGap)
	}
}

func TestDisruptStopped(t *testing.T) {
	needTwoCPUs(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err := execute(ctx, t.TempDir(), "disrupt", "--events", "configuration,policy", "--rate", "0.005", "--rounds", "1000")
	if !errors.Is(err, experiment.ErrStopped) && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	nothingOf(t, device.CulvertDevice)
}
