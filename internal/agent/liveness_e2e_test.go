package agent

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/testutil/bpffs"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// diamond is a customer behind a headend, from which two routers lead to an end. The routers
// and the end are the kernel's (seg6); what the end answers comes back by b alone.
type diamond struct {
	customer, headend, a, b, end *netns.NS
	*site
}

const diamondFile = `
interfaces:
  - {name: h0, roles: [edge], host: [ping]}
  - {name: ha, roles: [sr], host: any}
  - {name: hb, roles: [sr], host: any}
domain: ['fc00::/16']
encapsulation: {source: 'fc00:1::1'}
locators: [{name: main, prefix: 'fc00:1::/48'}]
liveness:
  enabled: true
  sid: 'fc00:1:0:f::'
  ends: [{locator: 'fc00:e::/48', sid: 'fc00:e:0:1::'}]
policies:
  - name: both
    segment_lists:
      - {segments: ['fc00:a:0:1::', 'fc00:e:0:6::']}
      - {segments: ['fc00:b:0:1::', 'fc00:e:0:6::']}
steering: [{prefix: 'fd0e::/64', policy: both}]
`

// protectedFile is diamondFile with one list a path, of which that by b protects that by a.
var protectedFile = strings.Replace(diamondFile, `
      - {segments: ['fc00:b:0:1::', 'fc00:e:0:6::']}
`, `
candidate_paths: [{name: spare, policy: both, preference: 50, segment_lists: [{segments: ['fc00:b:0:1::', 'fc00:e:0:6::']}]}]
`, 1)

func newDiamond(t *testing.T, file string) *diamond {
	t.Helper()
	d := &diamond{customer: netns.New(t), headend: netns.New(t), a: netns.New(t), b: netns.New(t), end: netns.New(t)}
	for _, l := range []struct {
		left, right         *netns.NS
		leftName, rightName string
		net                 string
	}{
		{d.customer, d.headend, "c0", "h0", "fd0c:"}, {d.headend, d.a, "ha", "ah", "fc00:aa:"}, {d.headend, d.b, "hb", "bh", "fc00:bb:"},
		{d.a, d.end, "ae", "ea", "fc00:ae:"}, {d.b, d.end, "be", "eb", "fc00:be:"},
	} {
		netns.Veth(t, l.left, l.leftName, l.right, l.rightName)
		l.left.Addr(t, l.leftName, l.net+":1/64")
		l.right.Addr(t, l.rightName, l.net+":2/64")
		l.left.Run(t, "ethtool", "-K", l.leftName, "gro", "on")
		l.right.Run(t, "ethtool", "-K", l.rightName, "gro", "on")
		for ns, name := range map[*netns.NS]string{l.left: l.leftName, l.right: l.rightName} {
			ns.Sysctl(t, "net.ipv6.conf."+name+".seg6_enabled", "1")
		}
	}
	for _, ns := range []*netns.NS{d.headend, d.a, d.b, d.end} {
		ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
		ns.Sysctl(t, "net.ipv6.conf.all.seg6_enabled", "1")
	}
	d.headend.Addr(t, "lo", "fc00:1::1/128")
	d.end.Addr(t, "lo", "fd0e::1/128")
	for ns, routes := range map[*netns.NS][]string{
		d.customer: {"default via fd0c::2"},
		d.headend:  {"fc00:a::/48 via fc00:aa::2", "fc00:b::/48 via fc00:bb::2", "fc00:e::/48 via fc00:bb::2"},
		d.a:        {"fc00:1::/48 via fc00:aa::1", "fc00:e::/48 via fc00:ae::2", "fc00:a:0:1::/128 encap seg6local action End dev ae"},
		d.b:        {"fc00:1::/48 via fc00:bb::1", "fc00:e::/48 via fc00:be::2", "fc00:b:0:1::/128 encap seg6local action End dev be"},
		d.end:      {"fc00:1::/48 via fc00:be::1", "fc00:e:0:1::/128 encap seg6local action End dev eb", "fc00:e:0:6::/128 encap seg6local action End.DT6 table 255 dev eb"},
	} {
		for _, r := range routes {
			ns.IP(t, "-6 route add "+r)
		}
	}
	d.site = &site{node: d.headend, dir: t.TempDir(), pins: bpffs.Dir(t, dataplane.Remove)}
	if err := os.WriteFile(filepath.Join(d.dir, "culvert.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// flows are numbered packets of many flows, from the customer to the end.
type flows struct {
	mu    sync.Mutex
	sent  []time.Time
	there map[uint32]bool
	stop  chan struct{}
	ended sync.WaitGroup
}

const flowCount = 64

func (d *diamond) flows(t *testing.T) *flows {
	t.Helper()
	f := &flows{there: map[uint32]bool{}, stop: make(chan struct{})}
	var in *net.UDPConn
	var out []*net.UDPConn
	var err error
	to := &net.UDPAddr{IP: net.ParseIP("fd0e::1"), Port: 9000}
	d.end.Do(t, func() { in, err = net.ListenUDP("udp6", to) })
	if err != nil {
		t.Fatal(err)
	}
	d.customer.Do(t, func() {
		for range flowCount {
			c, dialErr := net.DialUDP("udp6", nil, to)
			if dialErr != nil {
				t.Fatal(dialErr)
			}
			out = append(out, c)
		}
	})
	f.ended.Go(func() {
		b := make([]byte, 16)
		for {
			n, err := in.Read(b)
			if err != nil {
				return
			}
			if n == 4 {
				f.mu.Lock()
				f.there[binary.BigEndian.Uint32(b)] = true
				f.mu.Unlock()
			}
		}
	})
	f.ended.Go(func() {
		defer in.Close()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-f.stop:
				time.Sleep(100 * time.Millisecond) // what is on its way
				for _, c := range out {
					c.Close()
				}
				return
			case <-tick.C:
			}
			for range 4 {
				f.mu.Lock()
				n := uint32(len(f.sent))
				f.sent = append(f.sent, time.Now())
				f.mu.Unlock()
				_, _ = out[n%flowCount].Write(binary.BigEndian.AppendUint32(nil, n))
			}
		}
	})
	return f
}

// end says how many packets were lost, and how long after `since` the last of them left.
func (f *flows) end(since time.Time) (sent, lost int, until time.Duration) {
	close(f.stop)
	f.ended.Wait()
	for n, at := range f.sent {
		if !f.there[uint32(n)] {
			lost++
			until = at.Sub(since)
		}
	}
	return len(f.sent), lost, until
}

// says waits for a line of the log.
func (p *daemonProcess) says(t *testing.T, what string) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(p.log.String(), what) {
			return
		}
	}
	t.Fatalf("the daemon does not say %q:\n%s", what, p.log)
}

// A list that is cut in its middle, where the headend sees no link go, is left soon, and taken
// again once its probes return.
func TestCutInTheMiddle(t *testing.T) {
	d := newDiamond(t, diamondFile)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := d.daemon(t, binary)
	says := func(what string) { t.Helper(); p.says(t, what) }
	says("probes segment lists")
	time.Sleep(500 * time.Millisecond)
	f := d.flows(t)
	time.Sleep(time.Second)
	d.a.IP(t, "-6 route replace blackhole fc00:e::/48")
	cut := time.Now()
	says("segment list is down")
	time.Sleep(500 * time.Millisecond)
	sent, lost, until := f.end(cut)
	t.Logf("%d of %d packets lost, until %s after the cut", lost, sent, until)
	if lost == 0 || lost > sent/4 || until > time.Second {
		t.Errorf("%d of %d packets are lost, the last %s after the cut", lost, sent, until)
	}
	g := d.flows(t)
	time.Sleep(300 * time.Millisecond)
	if _, lost, _ := g.end(cut); lost > 0 {
		t.Errorf("%d packets are lost, and the list is down", lost)
	}
	d.a.IP(t, "-6 route replace fc00:e::/48 via fc00:ae::2")
	says("segment list is up")
	g = d.flows(t)
	time.Sleep(300 * time.Millisecond)
	if _, lost, _ := g.end(cut); lost > 0 {
		t.Errorf("%d packets are lost, and the list is up again", lost)
	}
}

// A path of a lower preference is held ready: a cut in the middle of the active one, where the
// headend sees no link go, or the loss of its first link, has packets take it at once. They
// return when the active path does.
func TestProtectionTakesOver(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		where     func(*diamond) *netns.NS
		cut, mend []string
	}{
		"in the middle":  {func(d *diamond) *netns.NS { return d.a }, []string{"-6 route replace blackhole fc00:e::/48"}, []string{"-6 route replace fc00:e::/48 via fc00:ae::2"}},
		"the first link": {func(d *diamond) *netns.NS { return d.headend }, []string{"link set ha down"}, []string{"link set ha up", "-6 addr replace fc00:aa::1/64 dev ha nodad", "-6 route replace fc00:a::/48 via fc00:aa::2"}},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDiamond(t, protectedFile)
			p := d.daemon(t, binary)
			p.says(t, "probes segment lists")
			time.Sleep(500 * time.Millisecond)
			f := d.flows(t)
			time.Sleep(500 * time.Millisecond)
			for _, line := range c.cut {
				c.where(d).IP(t, line)
			}
			cut := time.Now()
			p.says(t, "path=spare before=\"(its own segment lists)\" held_ready=true")
			time.Sleep(300 * time.Millisecond)
			sent, lost, until := f.end(cut)
			t.Logf("%d of %d packets lost, until %s after the cut", lost, sent, until)
			if lost > sent/4 || until > time.Second {
				t.Errorf("%d of %d packets are lost, the last %s after the cut", lost, sent, until)
			}
			g := d.flows(t)
			time.Sleep(300 * time.Millisecond)
			for _, line := range c.mend {
				c.where(d).IP(t, line)
			}
			p.says(t, "path=\"(its own segment lists)\" before=spare")
			time.Sleep(300 * time.Millisecond)
			if _, lost, _ := g.end(cut); lost > 0 {
				t.Errorf("%d packets are lost while the active path returns", lost)
			}
		})
	}
}
