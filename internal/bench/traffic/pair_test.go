package traffic

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// joined is a veth pair with nothing between: what is sent comes out.
func joined(t *testing.T) Options {
	t.Helper()
	a, b := netns.New(t), netns.New(t)
	quietly(t, a, b)
	netns.Veth(t, a, "tx", b, "rx")
	return Options{TX: Port{a.Path, "tx"}, RX: Port{b.Path, "rx"}, Method: Live, CheckEvery: 1, CPU: 1, Seed: 7}
}

// quietly keeps the kernel from saying anything of its own.
func quietly(t *testing.T, list ...*netns.NS) {
	t.Helper()
	for _, ns := range list {
		for _, which := range []string{"all", "default"} {
			ns.Sysctl(t, "net.ipv6.conf."+which+".disable_ipv6", "1")
		}
	}
}

func open(t *testing.T, o Options) *Pair {
	t.Helper()
	ns := o.RX.Namespace
	p, err := Open(context.Background(), o)
	if err != nil {
		t.Fatalf("%s: %v", ns, err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addresses(list ...string) (all []netip.Addr) {
	for _, s := range list {
		all = append(all, addr(s))
	}
	return all
}

var toDevice = Ethernet{Source: MAC{2, 0, 0, 0, 0, 9}, Destination: MAC{2, 0, 0, 0, 0, 1}}

func plain4() Template {
	return Template{Name: "ipv4", Ethernet: toDevice, Inner: Inner{Source: addr("198.51.100.1"), Destination: addr("203.0.113.1")}}
}

// Every packet comes out of a cable as it went in, by either method, and the pace
// is that of the kernel's clock: the packets of a trial are as many as its rate
// and duration say, and it is not over before.
func TestCable(t *testing.T) {
	for _, method := range []Method{Live, Packet} {
		for _, rate := range []float64{10e3, 100e3} {
			t.Run(fmt.Sprintf("%s/%.0f", method, rate), func(t *testing.T) {
				o := joined(t)
				o.Method = method
				out := whole(t, open(t, o), Trial{Template: everything(), Rate: rate, Duration: 300 * time.Millisecond})
				if out.Method != method || out.Receiver != "native" {
					t.Errorf("sent by %s, received by %s", out.Method, out.Receiver)
				}
				if out.Received != out.Sent || out.Lost+out.Corrupt+out.Duplicated+out.Reordered+out.Unexpected != 0 || out.Latency.Total() != out.Sent {
					t.Errorf("%+v", out)
				}
				want := rate * 0.3
				if out.AtLimit {
					t.Logf("the machine is too busy for the rate: %v paused", out.Paused)
				} else if math.Abs(float64(out.Sent)-want) > 1 || math.Abs(out.Rate-rate) > rate/100 || out.Elapsed < 300*time.Millisecond {
					t.Errorf("%d packets in %v, %v paused, %.0f packets/s: want %.0f, at %.0f", out.Sent, out.Elapsed, out.Paused, out.Rate, want, rate)
				}
			})
		}
	}
}

// everything varies all that there is: headers grow, numbers and lengths change.
func everything() Template {
	return Template{
		Name: "everything", Ethernet: toDevice, IMIX: true, Order: Random,
		Outer: Outer{Kind: GTPU, Source: addr("2001:db8:1::1"), Destination: addr("2001:db8:2::1"), TEID: 0x1101, Container: Downlink, QFI: 5},
		Inner: Inner{Source: addr("203.0.113.1"), Destination: addr("10.46.0.1"), UE: Destination},
		TEIDs: 5000, UEs: 5000, Sources: 300, Flows: 70,
	}
}

// A limit is a rate that is reached without a device, and a trial above it says
// so.
func TestLimit(t *testing.T) {
	for _, method := range []Method{Live, Packet} {
		o := joined(t)
		o.CheckEvery, o.Method = 1024, method
		p := open(t, o)
		limit, err := p.Limit(context.Background(), plain4())
		if err != nil {
			t.Fatal(err)
		}
		again, err := p.Limit(context.Background(), plain4())
		if err != nil || again != limit || limit <= 0 {
			t.Errorf("limit %v, then %v, %v", limit, again, err)
		}
		if out := whole(t, p, Trial{Template: plain4(), Rate: 1e9, Duration: 50 * time.Millisecond}); !out.AtLimit || out.Lost != 0 {
			t.Errorf("a thousand million packets/s: %+v", out)
		}
		cost, err := p.TimestampCost(context.Background(), plain4())
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s: limit %.0f packets/s, of which the time costs %.0f ns a packet", method, limit, cost)
	}
}
