package connectivity

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/probe"
)

// Kind of a probe.
type Kind string

// Kinds of probes.
const (
	Ping Kind = "ping" // ICMP
	UDP  Kind = "UDP"
	TCP  Kind = "TCP"
)

// Probe describes the packets that a pod sends.
type Probe struct {
	Kind  Kind       `json:"kind"`
	To    netip.Addr `json:"to"`
	Port  uint16     `json:"port,omitempty"`
	Count int        `json:"count"` // of packets, or of connections
	// Size of a packet's data, in octets.
	Size   int  `json:"size,omitempty"`
	Full   bool `json:"full,omitempty"`   // as in probe.Ping
	Beyond int  `json:"beyond,omitempty"` // as in probe.Ping
	// Bytes go there and back in each connection.
	Bytes int64 `json:"bytes,omitempty"`
	// Servers ends connections early, when so many have answered.
	Servers int `json:"servers,omitempty"`
	// Endless continues until the caller stops it.
	Endless bool `json:"endless,omitempty"`
}

// Answer is the result of a probe.
type Answer struct {
	Sent     int      `json:"sent"`     // packets, or KiB of TCP
	Received int      `json:"received"` // the same
	Corrupt  int      `json:"corrupt,omitempty"`
	TooLong  int      `json:"too_long,omitempty"` // not sent
	MTU      int      `json:"mtu,omitempty"`      // of the path, in octets
	Largest  int      `json:"largest,omitempty"`  // that arrives, in octets, where a full one does not
	Again    uint32   `json:"again,omitempty"`    // segments of TCP
	Seconds  float64  `json:"seconds,omitempty"`
	Servers  []string `json:"servers,omitempty"`
	// Errors are the ICMP errors that arrived, each kind once.
	Errors []probe.ICMPError `json:"errors,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// Limits and rates of probes.
const (
	atOnce       = 8 // probes of one pod
	pace         = 2 * time.Millisecond
	slowPace     = 5 * time.Millisecond // of what goes on: a busy node's sockets hold a second of it
	answerTime   = time.Second
	transferTime = 10 * time.Second
)

// Answers reads a list of Probes, sends them, and writes the list of Answers. A line
// after the list ends the endless probes.
func Answers(ctx context.Context, r io.Reader, w io.Writer) error {
	input := bufio.NewReader(r)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("what to send: %w", err)
	}
	var list []Probe
	if err := json.Unmarshal(line, &list); err != nil {
		return fmt.Errorf("what to send: %w", err)
	}
	var enough atomic.Bool
	go func() {
		_, _ = input.ReadByte() // whoever asked is gone where this fails
		enough.Store(true)
	}()
	answers := make([]Answer, len(list))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, p := range list {
		g.Go(func() error {
			answers[i] = p.run(ctx, func() bool { return p.Endless && !enough.Load() })
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(answers)
}

func (p Probe) run(ctx context.Context, more func() bool) Answer {
	if p.Kind == TCP {
		return p.connect(ctx)
	}
	a := p.ping(ctx, more)
	if p.Full && p.Beyond == 0 && a.Received < a.Sent && len(a.Errors) > 0 {
		a = p.ping(ctx, more) // the path's MTU is known now
	}
	if p.Full && p.Beyond == 0 && a.Received == 0 && a.Error == "" {
		a.Largest = p.largest(ctx, a.MTU)
	}
	return a
}

func (p Probe) packets() probe.Ping {
	return probe.Ping{
		From: probe.Here{}, To: p.To, Port: p.Port, Count: p.Count, Interval: pace, Size: p.Size, Full: p.Full, Beyond: p.Beyond, Wait: answerTime,
	}
}

func (p Probe) ping(ctx context.Context, more func() bool) Answer {
	packets := p.packets()
	if p.Endless {
		packets.While, packets.Interval = more, slowPace
	}
	r, err := packets.Run(ctx)
	a := Answer{Sent: r.Sent, Received: r.Received, Corrupt: r.Corrupt + r.Duplicates, TooLong: r.TooLong, MTU: r.MTU}
	for _, e := range r.Errors {
		if !slices.Contains(a.Errors, e) {
			a.Errors = append(a.Errors, e)
		}
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// smallest is what every path of IPv6 takes; IPv4 has no such figure.
const smallest = 1280

// largest is the length of the largest packet that arrives, in octets, 0 if not
// even small ones do.
func (p Probe) largest(ctx context.Context, mtu int) int {
	arrives := func(length int) bool {
		packets := p.packets()
		packets.Count, packets.Wait, packets.Beyond = 2, answerTime/4, length-mtu
		r, err := packets.Run(ctx)
		return err == nil && r.Received > 0
	}
	low := 100
	if arrives(smallest) {
		low = smallest
	} else if !arrives(low) {
		return 0
	}
	return low + sort.Search(mtu-low-1, func(i int) bool { return !arrives(low + 1 + i) })
}

// connect makes connections one after another.
func (p Probe) connect(ctx context.Context) (a Answer) {
	const kilo = 1 << 10
	for range p.Count {
		a.Sent += int(2 * p.Bytes / kilo)
		r, err := probe.Transfer{From: probe.Here{}, To: p.To, Port: p.Port, Bytes: p.Bytes, Limit: transferTime}.Run(ctx)
		a.Received += int(r.Received / kilo)
		a.Again += r.Retransmitted
		a.Seconds += r.Duration.Seconds()
		if err != nil {
			a.Error = err.Error()
			return a
		}
		if !slices.Contains(a.Servers, r.Server) {
			a.Servers = append(a.Servers, r.Server)
		}
		if p.Servers > 0 && len(a.Servers) >= p.Servers {
			break
		}
	}
	return a
}
