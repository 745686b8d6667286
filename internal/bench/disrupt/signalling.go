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
	"github.com/culvert-net/culvert/internal/config"
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

// nothing is what the others are held against.
const nothing = "nothing"

// underHandovers is what is done while handovers are sent.
var underHandovers = []struct {
	name string
	do   func(*Bench, context.Context, *device.Node) error
}{
	{nothing, func(_ *Bench, ctx context.Context, _ *device.Node) error { return node.Wait(ctx, eventTakes) }},
	{"kill", func(_ *Bench, ctx context.Context, n *device.Node) error {
		return n.Daemon.Again(ctx, n.Daemon.Binary, unix.SIGKILL)
	}},
	{"restart", func(_ *Bench, ctx context.Context, n *device.Node) error {
		return n.Daemon.Again(ctx, n.Daemon.Binary, unix.SIGTERM)
	}},
	{"upgrade", (*Bench).upgrade},
}

// n4Fast is the label with upf.n4_fast.
const n4Fast = "n4_fast"

// N4Fast are its values: the default first.
func N4Fast() []string { return []string{string(config.On), string(config.Off)} }

// n4Node is a UPF with SMFs that send handovers.
type n4Node struct {
	*device.Node
	fast      string // its upf.n4_fast
	handovers *signalling.Load
}

// signallingTakes is how long handovers are sent, if each event takes so long. Where the daemon
// answers them, SMFs wait for T1 besides.
func (d *Experiment) signallingTakes(each time.Duration) (all time.Duration) {
	for _, fast := range d.N4Fast {
		if fast == string(config.Off) {
			all += time.Duration(len(underHandovers)-1) * signalling.DefaultT1
		}
		all += time.Duration(len(underHandovers)) * each
	}
	return all
}

// openSignalling makes a UPF with SMFs behind an interface of its own.
func (b *Bench) openSignalling(ctx context.Context, fast string) error {
	n, err := device.NewNode("n4-" + fast)
	if err != nil {
		return err
	}
	b.Later(n.Close)
	if err := signalling.AddPort(n.Net, smfs); err != nil {
		return err
	}
	sessions := max(fewestSessions, int(b.Handovers)*sessionsFor/smfs*smfs)
	c := catalog.Configuration(nil, 1)
	signalling.Configure(c, sessions, fast == string(config.On))
	if err := n.Start(ctx, b.Setting, c, b.cpus.Device); err != nil {
		return err
	}
	handovers, err := signalling.DialNode(ctx, n.Net, b.cpus, smfs, signalling.Spec(sessions))
	if err != nil {
		return err
	}
	b.Later(handovers.Close)
	b.n4 = append(b.n4, n4Node{n, fast, handovers})
	return nil
}

// longestEvent is for how long handovers are sent at most.
const longestEvent = 5 * time.Minute

// measureSignalling has handovers go on while the daemon is killed, restarted, replaced.
func (b *Bench) measureSignalling(ctx context.Context) (list []experiment.Sample, err error) {
	for _, n := range b.n4 {
		for _, e := range underHandovers {
			r, took, err := b.duringHandovers(ctx, n, func(ctx context.Context) error { return e.do(b, ctx, n.Node) })
			if err != nil {
				return nil, err
			}
			if wrong := r.Refused + r.Wrong + r.Foreign; wrong > 0 {
				return nil, errors.Join(r.Err(), errors.New(n.Daemon.Tail()))
			}
			for _, says := range r.doubts(e.name, n.fast) {
				b.Warn("%s", says)
			}
			add := func(metric, unit string, value float64) {
				list = append(list, experiment.Sample{Metric: metric, Labels: result.Labels{"event": e.name, n4Fast: n.fast}, Unit: unit, Value: value})
			}
			ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
			add("n4_sent", "requests", float64(r.Sent))
			add("n4_unanswered", "requests", float64(r.Unanswered))
			add("n4_lost", "requests", float64(r.Lost))
			add("n4_queue_full", "messages", float64(r.queueFull))
			add("n4_longest_gap", "ms", ms(r.LongestGap))
			add("n4_p99", "ms", ms(r.P99))
			add("n4_event_took", "ms", ms(took))
		}
	}
	return list, nil
}

// outcome is what became of handovers, and of messages that N4's interface had no room for.
type outcome struct {
	signalling.Result
	queueFull int
}

// doubts say what was not as it is to be: where the data path answers each request has an
// answer within T1, and where the daemon does it has while nothing is done.
func (r *outcome) doubts(event, fast string) (list []string) {
	at := event + ", n4_fast " + fast
	if r.Skipped > 0 {
		list = append(list, fmt.Sprintf("%s: %d handovers were not sent: each session had one under way", at, r.Skipped))
	}
	if r.Unanswered > 0 && (event == nothing || fast == string(config.On)) {
		list = append(list, fmt.Sprintf("%s: %d of %d handovers were not answered within T1%s", at, r.Unanswered, r.Sent, becauseFull(float64(r.queueFull))))
	}
	return list
}

// becauseFull is the machine's part in what lacks an answer.
func becauseFull(messages float64) string {
	if messages == 0 {
		return ""
	}
	return fmt.Sprintf("; N4's queue was full for %.0f messages: the CPU that receives them did something else", messages)
}

// duringHandovers sends handovers before, while and after something is done, which took
// so long.
func (b *Bench) duringHandovers(ctx context.Context, n n4Node, do func(context.Context) error) (r outcome, took time.Duration, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	before, err := signalling.QueueFull(n.Net)
	if err != nil {
		return r, 0, err
	}
	until, done := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(until)
		var err error
		took, err = b.perform(ctx, do)
		done <- err
	}()
	r.Result, err = n.handovers.Run(ctx, signalling.Settings{Rate: b.Handovers, Duration: longestEvent, Until: until, On: b.cpus.Generator, Seed: b.Seed})
	if err != nil {
		end()
	}
	if err = errors.Join(<-done, err); err != nil {
		return r, took, err
	}
	after, err := signalling.QueueFull(n.Net)
	r.queueFull = after - before
	return r, took, err
}

// signallingFigures show what the SMFs noticed.
func signallingFigures() []result.Figure {
	figure := func(id, metric, title, unit, caption string) result.Figure {
		return result.Figure{ID: id, Title: title, Kind: result.Bars, Metric: metric, X: "event", Series: n4Fast, YTitle: unit, XTitle: "what was done", Better: result.BetterLess,
			Caption: caption + " on: the data path answers (upf.n4_fast, the default). off: the daemon does."}
	}
	return []result.Figure{
		figure("disrupt_n4_unanswered", "n4_unanswered", "Handovers without an answer in time", "requests",
			"Session Modification Requests at a steady rate, of which no answer came within T1 (3 s) while each was done. The SMF sends them again."),
		figure("disrupt_n4_queue", "n4_queue_full", "Messages of N4 that found a full queue", "messages",
			"Requests and answers that N4's interface had no room for: whoever receives them did not get the CPU. Such a request did not reach the UPF."),
		figure("disrupt_n4_gap", "n4_longest_gap", "Longest gap between two answers of N4", "ms",
			"For how long no SMF got an answer."),
	}
}

// signallingClaims say whether SMFs noticed what was done. Where requests lack an answer
// while nothing is done, the machine is the reason.
func signallingClaims(r *result.Run) (claims []string) {
	for _, m := range r.Select("n4_unanswered", nil) {
		most, requests, full := slices.Max(m.Samples), 0.0, 0.0
		for _, sent := range r.Select("n4_sent", m.Labels) {
			for _, n := range sent.Samples {
				requests += n
			}
		}
		for _, queue := range r.Select("n4_queue_full", m.Labels) {
			full = slices.Max(queue.Samples)
		}
		at := fmt.Sprintf("%s, n4_fast %s", m.Labels["event"], m.Labels[n4Fast])
		switch {
		case m.Labels["event"] == nothing || lostByItself(r, m.Labels):
		case most == 0:
			claims = append(claims, fmt.Sprintf("%s: each of %.0f handovers was answered within T1, in %d times.", at, requests, len(m.Samples)))
		default:
			claims = append(claims, fmt.Sprintf("%s: up to %.0f handovers were not answered within T1%s.", at, most, becauseFull(full)))
		}
	}
	return claims
}

// lostByItself says that requests lack an answer while nothing is done.
func lostByItself(r *result.Run, of result.Labels) bool {
	for _, floor := range r.Select("n4_unanswered", of.With("event", nothing)) {
		if slices.Max(floor.Samples) > 0 {
			return true
		}
	}
	return false
}
