package traffic

import (
	"context"
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

var toDevice = Ethernet{Source: MAC{2, 0, 0, 0, 0, 9}, Destination: MAC{2, 0, 0, 0, 0, 1}}

func plain4() Template {
	return Template{Name: "ipv4", Ethernet: toDevice, Inner: Inner{Source: addr("198.51.100.1"), Destination: addr("203.0.113.1")}}
}

func TestCable(t *testing.T) {
	p := open(t, joined(t))
	o, err := p.Run(context.Background(), Trial{Template: plain4(), Rate: 10000, Duration: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", o)
	if math.Abs(float64(o.Sent)-3000) > 1 || o.Received != o.Sent || o.Lost+o.Corrupt+o.Duplicated+o.Reordered+o.Unexpected != 0 {
		t.Errorf("%+v", o)
	}
}

// A limit is a rate that is reached without a device, and a trial above it says
// so.
func TestLimit(t *testing.T) {
	o := joined(t)
	o.CheckEvery = 1024
	p := open(t, o)
	limit, err := p.Limit(context.Background(), plain4())
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Limit(context.Background(), plain4())
	if err != nil || again != limit || limit < 1e4 {
		t.Errorf("limit %v, then %v, %v", limit, again, err)
	}
	out, err := p.Run(context.Background(), Trial{Template: plain4(), Rate: 1e9, Duration: 50 * time.Millisecond})
	if err != nil || !out.AtLimit || out.Lost != 0 {
		t.Errorf("a thousand million packets/s: %+v, %v", out, err)
	}
	t.Logf("limit %.0f packets/s", limit)
}
