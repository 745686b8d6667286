package traffic

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// Each thing that is not as it must be has an error that says what to do.
func TestBadPorts(t *testing.T) {
	ns, other := netns.New(t), netns.New(t)
	quietly(t, ns, other)
	netns.Veth(t, ns, "tx", other, "in")
	netns.Veth(t, ns, "rx", other, "out")
	netns.Veth(t, ns, "idle", other, "peer")
	netns.Veth(t, ns, "dark", other, "off")
	ns.IP(t, "link set dev idle down")
	other.IP(t, "link set dev off down")
	tx, rx := Port{ns.Path, "tx"}, Port{ns.Path, "rx"}
	for name, c := range map[string]struct {
		options Options
		says    string
	}{
		"no interface":   {Options{TX: Port{ns.Path, "nope"}, RX: rx}, "interface nope in " + ns.Path + ": there is no such interface (ip link"},
		"no namespace":   {Options{TX: tx, RX: Port{"/run/netns/gone", "rx"}}, "interface rx in /run/netns/gone: network namespace: open /run/netns/gone: no such file"},
		"down":           {Options{TX: Port{ns.Path, "idle"}, RX: rx}, "is down (fix: ip link set dev idle up)"},
		"no carrier":     {Options{TX: tx, RX: Port{ns.Path, "dark"}}, "has no carrier: is the other end up?"},
		"lo":             {Options{TX: Port{ns.Path, "lo"}, RX: rx}, "has no Ethernet header"},
		"no live frames": {Options{TX: tx, RX: rx, Method: Live}, "(driver veth) does not send live frames: its peer has neither an XDP program nor GRO"},
		"method":         {Options{TX: tx, RX: rx, Method: "dpdk"}, `method "dpdk": there are live and packet`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Open(context.Background(), c.options)
			if err == nil {
				err = p.Close()
				t.Errorf("it opened (closed: %v)", err)
			} else if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	first := open(t, Options{TX: tx, RX: rx})
	if _, err := Open(context.Background(), Options{TX: tx, RX: rx}); err == nil || !strings.Contains(err.Error(), "another XDP program is attached: take it off (ip link set dev rx xdp off)") {
		t.Errorf("two receivers at one interface: %v", err)
	}
	if m, why := first.Sends(); m != Packet || !strings.Contains(why, "neither an XDP program nor GRO") {
		t.Errorf("a veth whose peer takes no live frames has method %s, because %q", m, why)
	}
}

// A device that forwards nothing is no measurement: it is said what to look at,
// beside what was sent.
func TestNothingComesOut(t *testing.T) {
	ns, other := netns.New(t), netns.New(t)
	quietly(t, ns, other)
	netns.Veth(t, ns, "tx", other, "in")
	netns.Veth(t, ns, "rx", other, "out")
	o, err := open(t, Options{TX: Port{ns.Path, "tx"}, RX: Port{ns.Path, "rx"}, CPU: 1}).
		Run(context.Background(), Trial{Template: plain4(), Rate: 1000, Duration: 100 * time.Millisecond})
	if !errors.Is(err, ErrNothing) || !strings.Contains(err.Error(), "nothing came in at rx in "+ns.Path+" of 100 packets that tx in") {
		t.Errorf("%v", err)
	}
	if o.Sent != 100 || o.Lost != 100 {
		t.Errorf("%+v", o)
	}
}

// A trial that is stopped keeps what it has, and ends at once.
func TestStop(t *testing.T) {
	for _, method := range []Method{Live, Packet} {
		o := joined(t)
		o.Method = method
		p := open(t, o)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		go func() {
			for ctx.Err() == nil && received(t, p) < 1000 {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
		}()
		out, err := p.Run(ctx, Trial{Template: plain4(), Rate: 10000, Duration: time.Hour})
		if !errors.Is(err, context.Canceled) || out.Sent < 1000 || out.Received != out.Sent {
			t.Errorf("%s: %+v, %v", method, out, err)
		}
		if _, err := p.Run(ctx, Trial{Template: plain4(), Rate: 10000, Duration: time.Second}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: after its end: %v", method, err)
		}
	}
}

// received is how many packets came in at the receiving interface.
func received(t *testing.T, p *Pair) uint64 {
	n, err := counter(p.options.RX, p.rx, func(l procfs.NetDevLine) uint64 { return l.RxPackets })
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestBadTrials(t *testing.T) {
	p := open(t, joined(t))
	nowhere := plain4()
	nowhere.Ethernet = Ethernet{}
	for _, c := range []struct {
		trial  Trial
		expect *Template
		says   string
	}{
		{Trial{Template: nowhere, Duration: time.Second}, nil, "ethernet.destination is missing"},
		{Trial{Template: plain4()}, nil, "want a time"},
		{Trial{Template: plain4(), Rate: -1, Duration: time.Second}, nil, "a rate or 0"},
		{Trial{Template: Template{Size: 2000}, Duration: time.Second}, nil, "size: frames of 2000 octets"},
		{Trial{Template: plain4(), Duration: time.Second}, &Template{Outer: Outer{Kind: GTPU}}, "what is expected: outer: GTP-U goes between two addresses"},
		{Trial{Template: gtpu4(), Duration: time.Second}, &Template{Outer: gtpu4().Outer, TEIDs: 7}, "teids: 7 are expected, 10 are sent (fix: the same number"},
	} {
		p.options.Expect = c.expect
		if _, err := p.Run(context.Background(), c.trial); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.trial, err, c.says)
		}
	}
}

// Interfaces without XDP are measured by AF_PACKET and the kernel's generic
// code.
func TestWithoutXDP(t *testing.T) {
	ns := netns.New(t)
	quietly(t, ns)
	netns.Veth(t, ns, "a", ns, "b")
	for _, line := range []string{
		"link add name tx type bridge", "link add name rx type bridge", "link set dev a master tx", "link set dev b master rx",
		"link set dev tx up", "link set dev rx up",
	} {
		ns.IP(t, line)
	}
	template := everything()
	template.Ethernet = Ethernet{Destination: MAC(ns.Interface(t, "rx").HardwareAddr)}
	var p *Pair
	await(t, func() (up bool) { // a bridge has no carrier before its ports forward
		pair, err := Open(context.Background(), Options{TX: Port{ns.Path, "tx"}, RX: Port{ns.Path, "rx"}, CPU: 1, CheckEvery: 1})
		p = pair
		return err == nil
	})
	defer p.Close()
	o := whole(t, p, Trial{Template: template, Rate: 5000, Duration: 200 * time.Millisecond})
	if o.Method != Packet || o.Receiver != "generic" || o.Received != 1000 || o.Lost+o.Corrupt+o.Duplicated != 0 || o.Checked != 1000 {
		t.Errorf("%+v", o)
	}
}
