package smf

import (
	"context"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/session"
)

// free is an address with a port that the system chooses.
func free(text string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(text), 0) }

// addr is an address.
func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func netip4(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// responder answers while the test runs.
func responder(t testing.TB) netip.AddrPort {
	t.Helper()
	r, err := ListenResponder(free("127.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("responder: %v", err)
		}
	})
	return r.Addr()
}

// dial is a client of a UPF.
func dial(t testing.TB, o Options) *Client {
	t.Helper()
	o.Local = free("127.0.0.1")
	c, err := Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// spec is a template with a rule of each kind.
func spec(d Dialect, count int) Spec {
	s := Spec{
		Count: count, UE4: netip.MustParsePrefix("10.0.0.0/8"), NetworkInstance: "internet", DNN: "internet", QFI: 9,
		Access: &Tunnel{Address: netip.MustParseAddr("192.0.2.1"), TEID: 0x1000}, MBR: &session.BitRate{Uplink: 100_000, Downlink: 200_000},
	}
	s.SNSSAI.SST, s.SNSSAI.SD = 1, "000001"
	if d == Free5GC {
		s.Local = &Local{Address: netip.MustParseAddr("127.0.0.2"), AccessTEID: 0x2000}
	}
	return s
}

func BenchmarkNull(b *testing.B) {
	for _, window := range []int{1, 64, 512} {
		c := dial(b, Options{UPF: responder(b)})
		g, err := c.Add(spec(Open5GS, 100_000))
		if err != nil {
			b.Fatal(err)
		}
		for _, step := range []func(context.Context, Pace) (Result, error){g.Establish, g.Forward, g.Delete} {
			r, err := step(b.Context(), Pace{Window: window})
			if err != nil || r.Err() != nil {
				b.Fatal(err, r.Err())
			}
			b.Logf("window %d: %+v", window, r)
		}
	}
}
