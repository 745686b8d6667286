package bench

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/smf"
)

// recoverRow is how long N4 is silent when the daemon is killed and started again
// at once, in seconds.
type recoverRow struct {
	Name    string  `json:"name"`
	Entries uint32  `json:"entries"`
	Repeats int     `json:"repeats"`
	Median  float64 `json:"median_s"`
	Max     float64 `json:"max_s"`
}

const (
	recoverSessions = 10_000
	recoverRepeats  = 5
)

// recovery has a UPF of its own, whose tables are for these sessions.
func recovery(ctx context.Context, o *options, p plan) (r recoverRow, err error) {
	p.functions, p.entries, p.open = upfFunctions(shortSize)[1:2], []uint32{recoverSessions}, true
	b, err := setUp(ctx, o, p, 1)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.tearDown()) }()
	var seconds []float64
	for range recoverRepeats {
		s, err := b.recoverOnce(ctx)
		if err != nil {
			return r, err
		}
		seconds = append(seconds, s)
	}
	return recoverRow{Name: "pfcp_recover", Entries: recoverSessions, Repeats: recoverRepeats,
		Median: stats.Median(seconds), Max: slices.Max(seconds)}, nil
}

// recoverOnce kills the daemon, starts it and asks for a heartbeat, as a node that
// the UPF has no association with: nothing that its SMF does is waited for.
func (b *bench) recoverOnce(ctx context.Context) (seconds float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	in, killed := b.node.net.node, time.Now()
	if err := b.daemon.replace(ctx, in, b.daemon.binary, unix.SIGKILL); err != nil {
		return 0, err
	}
	err = in.do(func() error { return smf.Await(ctx, netip.AddrPortFrom(n4UPF, smf.Port)) })
	if err != nil {
		return 0, err
	}
	seconds = time.Since(killed).Seconds()
	return seconds, b.daemon.await(ctx)
}
