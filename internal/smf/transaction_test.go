package smf

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/message"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// A lost request is sent again, the same to the octet.
func TestRetransmission(t *testing.T) {
	u := newUPF(t)
	c := dial(t, fast(u, Open5GS))
	lost := 0
	u.change(func() { u.lose = func(int, uint8) bool { lost++; return lost == 1 } })
	g, err := c.Add(spec(Open5GS, 1))
	if err != nil {
		t.Fatal(err)
	}
	r, err := g.Establish(t.Context(), Pace{})
	if err != nil || r.Err() != nil || r.Retransmissions != 1 || r.Requests != 1 || r.P50 < 90_000 {
		t.Errorf("%+v, %v", r, err)
	}
	sent := u.of(message.MsgTypeSessionEstablishmentRequest)
	if len(sent) != 2 || !bytes.Equal(sent[0].raw, sent[1].raw) {
		t.Errorf("%d requests, or another one", len(sent))
	}
}

// A UPF that does not answer fails what is asked of it, in time, and everything
// is as before.
func TestUnanswered(t *testing.T) {
	u := newUPF(t)
	c := dial(t, fast(u, Open5GS))
	u.change(func() { u.lose = func(int, uint8) bool { return true } })
	began := time.Now()
	if _, err := c.Associate(t.Context()); !errors.Is(err, ErrUnanswered) {
		t.Errorf("associate: %v", err)
	}
	if d := time.Since(began); d < 300*time.Millisecond || d > 8*time.Second {
		t.Errorf("given up after %v, want three times 100 ms", d)
	}
	g, err := c.Add(spec(Open5GS, 100))
	if err != nil {
		t.Fatal(err)
	}
	r, err := g.Establish(t.Context(), Pace{Window: 32})
	// After a window without any answer the rest is not even sent.
	if err != nil || r.Failures != 100 || r.Requests != 100 || r.Retransmissions != 64 || len(r.Problems) != 2 || !errors.Is(r.Err(), ErrUnanswered) || g.Live() != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	// An interrupt ends it at once, and leaves nothing under way.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if r, err = g.Establish(ctx, Pace{}); !errors.Is(err, context.Canceled) || r.Failures != 64 {
		t.Errorf("%+v, %v", r, err)
	}
	if c.table.count != 0 {
		t.Errorf("%d requests are under way", c.table.count)
	}
	u.change(func() { u.lose = nil })
	if r, err = g.Establish(t.Context(), Pace{}); err != nil || r.Err() != nil || g.Live() != 100 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Requests keep to the window and the rate, and have sequence numbers of their
// own, also around the end of the 24 bits.
func TestPace(t *testing.T) {
	u := newUPF(t)
	o := fast(u, Open5GS)
	o.Sequence = 1<<24 - 50
	c := dial(t, o)
	g, err := c.Add(spec(Open5GS, 200))
	if err != nil {
		t.Fatal(err)
	}
	reported := 0
	r, err := g.Establish(t.Context(), Pace{Rate: 500, Window: 8, Progress: func(done, of int) {
		if of != 200 {
			t.Errorf("of %d", of)
		}
		reported = done
	}})
	if err != nil || r.Err() != nil || reported != 200 {
		t.Fatalf("%+v, %v, progress %d", r, err, reported)
	}
	if r.PerSecond < 400 || r.PerSecond > 510 {
		t.Errorf("%.0f a second, asked for 500", r.PerSecond)
	}
	seen := map[uint32]bool{}
	for _, q := range u.of(message.MsgTypeSessionEstablishmentRequest) {
		seen[q.message.Sequence()] = true
	}
	if len(seen) != 200 || !seen[1<<24-1] || !seen[0] {
		t.Errorf("%d sequence numbers", len(seen))
	}
}

// A window is never exceeded: of a UPF that is silent exactly that many
// requests are seen.
func TestWindow(t *testing.T) {
	u := newUPF(t)
	o := fast(u, Open5GS)
	o.Timeout = 10 * time.Second
	c := dial(t, o)
	u.change(func() { u.lose = func(int, uint8) bool { return true } })
	g, err := c.Add(spec(Open5GS, 200))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := g.Establish(ctx, Pace{Window: 17}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if n := len(u.of(message.MsgTypeSessionEstablishmentRequest)); n != 17 {
		t.Errorf("%d requests, window 17", n)
	}
}

// sink is a socket that keeps what is written.
type sink struct {
	Socket
	refuses bool // longer messages than a datagram
	sent    []string
}

func (s *sink) WriteBatch(ms []ipv4.Message, _ int) (int, error) {
	for _, m := range ms {
		if len(m.OOB) > 0 && s.refuses {
			return -1, unix.EIO
		}
		for _, b := range m.Buffers {
			s.sent = append(s.sent, string(b))
		}
	}
	return len(ms), nil
}

// TestBatch: all requests go, each once and in order, whether the kernel makes
// datagrams of a longer message or not.
func TestBatch(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		for _, texts := range [][]string{{"one"}, {"one", "two", "six"}, {"one", "three"}} {
			s, b := &sink{refuses: refuses}, NewBatch(&net.UDPAddr{})
			var list [][]byte
			for _, text := range texts {
				list = append(list, []byte(text))
			}
			for range 2 {
				if err := b.Send(s, list); err != nil {
					t.Fatal(err)
				}
			}
			if want := slices.Concat(texts, texts); !slices.Equal(s.sent, want) {
				t.Errorf("refuses: %v: sent %q, want %q", refuses, s.sent, want)
			}
		}
	}
}
