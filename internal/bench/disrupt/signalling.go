package disrupt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// signallingEvent is the event under a load of handovers, not of packets.
const signallingEvent = "signalling"

// The SMFs that send handovers. There are sessions for four seconds of them: each has
// one request under way.
const (
	smfs           = 4
	sessionsFor    = 4
	fewestSessions = 256
)

// underHandovers is what is done while handovers are sent.
var underHandovers = []struct {
	name string
	do   func(*Bench, context.Context, *device.Node) error
}{
	{"nothing", func(_ *Bench, ctx context.Context, _ *device.Node) error { return node.Wait(ctx, eventTakes) }},
	{"kill", func(_ *Bench, ctx context.Context, n *device.Node) error {
		return n.Daemon.Again(ctx, n.Daemon.Binary, unix.SIGKILL)
	}},
	{"restart", func(_ *Bench, ctx context.Context, n *device.Node) error {
		return n.Daemon.Again(ctx, n.Daemon.Binary, unix.SIGTERM)
	}},
	{"upgrade", (*Bench).upgrade},
}

// openSignalling makes a UPF with SMFs behind an interface of its own.
func (b *Bench) openSignalling(ctx context.Context) (err error) {
	n, err := device.NewNode("n4")
	if err != nil {
		return err
	}
	b.Later(n.Close)
	if err := signalling.AddPort(n.Net, smfs); err != nil {
		return err
	}
	sessions := max(fewestSessions, int(b.Handovers)*sessionsFor/smfs*smfs)
	c := catalog.Configuration(nil, 1)
	signalling.Configure(c, sessions, b.N4Fast)
	if err := n.Start(ctx, b.Setting, c, b.cpus.Device); err != nil {
		return err
	}
	if b.handovers, err = signalling.DialNode(ctx, n.Net, b.cpus.Device, smfs, signalling.Spec(sessions)); err != nil {
		return err
	}
	b.Later(b.handovers.Close)
	b.n4 = n
	return nil
}

// longestEvent is for how long handovers are sent at most.
const longestEvent = 5 * time.Minute

// measureSignalling has handovers go on while the daemon is killed, restarted, replaced.
func (b *Bench) measureSignalling(ctx context.Context) (list []experiment.Sample, err error) {
	for _, e := range underHandovers {
		r, took, err := b.duringHandovers(ctx, func(ctx context.Context) error { return e.do(b, ctx, b.n4) })
		if err != nil {
			return nil, err
		}
		if r.Skipped > 0 {
			b.Warn("%s: %d handovers were not sent: each session had one under way", e.name, r.Skipped)
		}
		if wrong := r.Refused + r.Wrong + r.Foreign; wrong > 0 {
			return nil, errors.Join(r.Err(), errors.New(b.n4.Daemon.Tail()))
		}
		add := func(metric, unit string, value float64) {
			list = append(list, experiment.Sample{Metric: metric, Labels: result.Labels{"event": e.name}, Unit: unit, Value: value})
		}
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		add("n4_sent", "requests", float64(r.Sent))
		add("n4_unanswered", "requests", float64(r.Unanswered))
		add("n4_lost", "requests", float64(r.Lost))
		add("n4_longest_gap", "ms", ms(r.LongestGap))
		add("n4_p99", "ms", ms(r.P99))
		add("n4_event_took", "ms", ms(took))
	}
	return list, nil
}

// duringHandovers sends handovers before, while and after something is done, which took
// so long.
func (b *Bench) duringHandovers(ctx context.Context, do func(context.Context) error) (r signalling.Result, took time.Duration, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	until, done := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(until)
		var err error
		took, err = b.perform(ctx, do)
		done <- err
	}()
	r, err = b.handovers.Run(ctx, signalling.Settings{Rate: b.Handovers, Duration: longestEvent, Until: until, On: b.cpus.Generator, Seed: b.Seed})
	if err != nil {
		end()
	}
	return r, took, errors.Join(<-done, err)
}

// signallingFigures show what the SMFs noticed.
func signallingFigures() []result.Figure {
	figure := func(id, metric, title, unit, caption string) result.Figure {
		return result.Figure{ID: id, Title: title, Kind: result.Bars, Metric: metric, X: "event", YTitle: unit, XTitle: "what was done", Caption: caption}
	}
	return []result.Figure{
		figure("disrupt_n4_unanswered", "n4_unanswered", "Handovers without an answer in time", "requests",
			"Session Modification Requests at a steady rate, of which no answer came within T1 (3 s) while each was done. The SMF sends them again."),
		figure("disrupt_n4_gap", "n4_longest_gap", "Longest gap between two answers of N4", "ms",
			"For how long no SMF got an answer."),
	}
}

// signallingClaims say whether SMFs noticed what was done. Where requests lack an answer
// while nothing is done, the machine is the reason.
func signallingClaims(r *result.Run) (claims []string) {
	for _, floor := range r.Select("n4_unanswered", result.Labels{"event": "nothing"}) {
		if slices.Max(floor.Samples) > 0 {
			return nil
		}
	}
	for _, m := range r.Select("n4_unanswered", nil) {
		event, most, requests := m.Labels["event"], slices.Max(m.Samples), 0.0
		for _, sent := range r.Select("n4_sent", m.Labels) {
			for _, n := range sent.Samples {
				requests += n
			}
		}
		switch {
		case event == "nothing":
		case most == 0:
			claims = append(claims, fmt.Sprintf("%s: each of %.0f handovers was answered within T1, in %d times.", event, requests, len(m.Samples)))
		default:
			claims = append(claims, fmt.Sprintf("%s: up to %.0f handovers were not answered within T1.", event, most))
		}
	}
	return claims
}
