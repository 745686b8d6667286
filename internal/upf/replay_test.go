package upf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/pfcp"
	instrument "github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/smf/replay"
)

// player plays a capture to n, as an SMF at an address.
func (n *n4) player(t *testing.T, local, capture string, times int) *replay.Player {
	t.Helper()
	c, err := instrument.Dial(instrument.Options{
		UPF: netip.AddrPortFrom(addr("127.93.0.8"), pfcp.Port), Local: netip.AddrPortFrom(addr(local), pfcp.Port), Timeout: time.Second, Attempts: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	p, err := c.Replay(replay.Settings{Capture: capture, Times: times, GTPU: addr("10.200.0.8")})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestReplay plays what real SMFs sent, a hundred times at once, to the whole UPF: it
// answers as the captures' UPFs did, and has the sessions that they had.
func TestReplay(t *testing.T) {
	const times = 100
	for capture, want := range map[string]struct{ requests, sessions int }{
		"free5gc":      {9 + 2*times, times},
		"open5gs":      {10 + 13*times, 2 * times},
		"open5gs-live": {95 + 16*times, 3 * times},
		"sd-core":      {2 + 21*times, 2 * times},
	} {
		t.Run(capture, func(t *testing.T) {
			n := newN4(t)
			r, err := n.player(t, "127.93.0.3", capture, times).Play(t.Context(), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if r.Err() != nil || r.Requests != want.requests || r.Sessions != want.sessions || n.Len() != want.sessions || !r.Complete {
				t.Errorf("%v: %+v, the UPF has %d sessions, want %+v", r.Err(), r, n.Len(), want)
			}
		})
	}
}

// Somebody else gets nothing: an SMF that is not listed, and one that names the F-TEIDs
// and UE addresses of another SMF's sessions.
func TestReplayByOthers(t *testing.T) {
	n := newN4(t)
	r, err := n.player(t, "127.94.0.3", "free5gc", 1).Play(t.Context(), 0, 0)
	if !errors.Is(err, instrument.ErrUnanswered) || r.Requests != 0 || n.Len() != 0 {
		t.Errorf("an SMF that is not listed: %+v, %v, %d sessions", r, err, n.Len())
	}
	if r, err := n.player(t, "127.93.0.3", "free5gc", 10).Play(t.Context(), 0, 0); err != nil || r.Err() != nil || n.Len() != 10 {
		t.Fatalf("%+v, %v, %d sessions", r, err, n.Len())
	}
	used := fmt.Sprint(n.path.Usage())
	r, err = n.player(t, "127.93.0.4", "free5gc", 10).Play(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "Cause") || r.Sessions != 0 || r.Differences[len(r.Differences)-1].Copies != 10 || n.Len() != 10 {
		t.Errorf("another SMF's F-TEIDs: %v, %+v, %d sessions", r.Err(), r, n.Len())
	}
	if now := fmt.Sprint(n.path.Usage()); now != used {
		t.Errorf("entries in use: %v, before %v", now, used)
	}
}
