package probe

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// space is a network namespace that is held open by a thread's file.
type space struct{ ns *os.File }

func (s space) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(s.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func newSpace(t *testing.T) (s space) {
	t.Helper()
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		for name, value := range map[string]string{"ipv4/ping_group_range": "0 0", "ipv6/conf/default/accept_dad": "0"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
		s.ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.ns.Close() })
	s.ip(t, "link set dev lo up") // net asks it once which families there are
	return s
}

func (s space) ip(t *testing.T, lines ...string) {
	t.Helper()
	for _, l := range lines {
		err := s.Do(func() error {
			out, err := exec.Command("sh", "-c", "ip "+l).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %w: %s", l, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// pair is two namespaces with a router between them, whose second link has an
// MTU of 1400: 10.0.1.1 and 10.0.2.1, 2001:db8:1::1 and 2001:db8:2::1.
func pair(t *testing.T) (left, right space) {
	t.Helper()
	left, router, right := newSpace(t), newSpace(t), newSpace(t)
	link := func(a, b space, name string) {
		// Named by the file descriptors of this process.
		a.ip(t, fmt.Sprintf("link add name %s type veth peer name %s netns /proc/%d/fd/%d", name, name, os.Getpid(), b.ns.Fd()))
	}
	link(left, router, "l")
	link(router, right, "r")
	left.ip(t, "link set dev l up", "addr add 10.0.1.1/24 dev l", "addr add 2001:db8:1::1/64 dev l nodad",
		"route add default via 10.0.1.2", "route add default via 2001:db8:1::2")
	router.ip(t, "link set dev l up", "link set dev r up mtu 1400", "addr add 10.0.1.2/24 dev l", "addr add 2001:db8:1::2/64 dev l nodad",
		"addr add 10.0.2.2/24 dev r", "addr add 2001:db8:2::2/64 dev r nodad")
	right.ip(t, "link set dev r up mtu 1400", "addr add 10.0.2.1/24 dev r", "addr add 2001:db8:2::1/64 dev r nodad",
		"route add default via 10.0.2.2", "route add default via 2001:db8:2::2")
	err := router.Do(func() error {
		for _, f := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/"+f, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return left, right
}

var (
	right4, right6 = netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("2001:db8:2::1")
	nobody         = netip.MustParseAddr("10.0.2.77")
)

func TestPing(t *testing.T) {
	left, _ := pair(t)
	for _, to := range []netip.Addr{right4, right6} {
		tests := []struct {
			name           string
			ping           Ping
			sent, received int
			kind           string
			mtu            uint32
		}{
			{"answered", Ping{Count: 10, Size: 1000}, 10, 10, "", 0},
			{"hop limit", Ping{Count: 2, HopLimit: 1}, 2, 0, HopLimitExceeded, 0},
			{"too big", Ping{Count: 1, Size: 1400, DF: true}, 1, 0, TooBig, 1400},
			{"too long for what is known", Ping{Count: 1, Size: 1400, DF: true}, 0, 0, "", 0},
			{"fragmented", Ping{Count: 3, Size: 3000}, 3, 3, "", 0},
		}
		for _, tt := range tests {
			t.Run(fmt.Sprint(to.Is4(), " ", tt.name), func(t *testing.T) {
				tt.ping.From, tt.ping.To, tt.ping.Interval, tt.ping.Wait = left, to, time.Millisecond, 300*time.Millisecond
				r, err := tt.ping.Run(t.Context())
				if err != nil || r.Sent != tt.sent || r.Received != tt.received || r.Corrupt+r.Duplicates != 0 || r.TooLong != tt.ping.Count-tt.sent {
					t.Errorf("%+v, %v", r, err)
				}
				if tt.kind == "" && len(r.Errors) == 0 {
					return
				}
				if len(r.Errors) == 0 || r.Errors[0].Kind() != tt.kind || r.Errors[0].MTU != tt.mtu || !r.Errors[0].From.IsValid() {
					t.Errorf("errors %+v: want %s, MTU %d", r.Errors, tt.kind, tt.mtu)
				}
			})
		}
	}
}

// Each answer is told when it comes, with its sequence number and round trip.
func TestPingAnswered(t *testing.T) {
	left, _ := pair(t)
	var sequences []int
	p := Ping{From: left, To: right4, Count: 3, Interval: 20 * time.Millisecond, Wait: 10 * time.Second}
	p.Answered = func(sequence int, after time.Duration) {
		if sequences = append(sequences, sequence); after <= 0 || after >= time.Second {
			t.Errorf("answer %d after %v", sequence, after)
		}
	}
	if r, err := p.Run(t.Context()); err != nil || r.Received != 3 || !slices.Equal(sequences, []int{0, 1, 2}) {
		t.Errorf("%+v, %v, answers %v", r, err, sequences)
	}
	sequences, p.To, p.Wait = nil, nobody, 300*time.Millisecond
	if r, err := p.Run(t.Context()); err != nil || r.Sent != 3 || len(sequences) != 0 {
		t.Errorf("nobody answers: %+v, %v, answers %v", r, err, sequences)
	}
}

func TestPingNobody(t *testing.T) {
	left, _ := pair(t)
	r, err := Ping{From: left, To: nobody, Count: 2, Interval: time.Millisecond, Wait: 100 * time.Millisecond}.Run(t.Context())
	if err != nil || r.Sent != 2 || r.Received != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestStream(t *testing.T) {
	left, right := pair(t)
	left6 := netip.MustParseAddr("2001:db8:1::1")
	for _, s := range []Stream{
		{To: right4, Count: 300, Flows: 5, Size: 500},
		{To: right6, Source: left6, Count: 300},
	} {
		s.From, s.At, s.Interval, s.Wait = left, right, 100*time.Microsecond, time.Minute // nothing is waited for
		if r, err := s.Run(t.Context()); err != nil || r.Sent != 300 || r.Received != 300 || r.Duplicates+r.Corrupt+r.Reordered != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestStreamLoses takes the link away while the stream flows: the loss must
// be seen, and While must keep the stream going.
func TestStreamLoses(t *testing.T) {
	left, right := pair(t)
	start := time.Now()
	down := make(chan struct{})
	go func() {
		defer close(down)
		time.Sleep(50 * time.Millisecond)
		right.ip(t, "link set dev r down")
	}()
	r, err := Stream{
		From: left, At: right, To: right4, Count: 10, Interval: time.Millisecond, Wait: 50 * time.Millisecond,
		While: func() bool { return time.Since(start) < 300*time.Millisecond },
	}.Run(t.Context())
	<-down
	if err != nil || r.Sent < 100 || r.Received == 0 || r.Received >= r.Sent {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTransfer(t *testing.T) {
	left, right := pair(t)
	rounds := 0
	r, err := Transfer{
		From: left, At: right, To: right6, Bytes: 300_000, Limit: 10 * time.Second,
		While: func() bool { rounds++; return rounds < 3 },
	}.Run(t.Context())
	if err != nil || r.Sent != 3*2*300_000 || r.Received != r.Sent || r.Duration == 0 || r.Client != netip.MustParseAddr("2001:db8:1::1") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTransferToNobody(t *testing.T) {
	left, _ := pair(t)
	r, err := Transfer{From: left, At: left, Source: netip.MustParseAddr("10.0.1.1"), To: right4, Bytes: 1, Limit: 300 * time.Millisecond}.Run(t.Context())
	if err == nil {
		t.Errorf("%+v", r)
	}
}

func TestRateMeter(t *testing.T) {
	began := time.Now()
	m := rateMeter{settle: 100 * time.Millisecond}
	for i := range 201 { // a burst of ten at the start, and then 1000 octets each 10 ms
		m.add(began.Add(time.Duration(max(0, i-10))*10*time.Millisecond), 1000)
	}
	if got := m.rate(); got < 799.9 || got > 800.1 {
		t.Errorf("%.2f kbit/s: want 800", got)
	}
	if got := (&rateMeter{}).rate(); got != 0 {
		t.Errorf("%.2f kbit/s of nothing", got)
	}
}

// TestDevice wants each probe to leave by the device that it is bound to: by
// the other one nobody is reached.
func TestDevice(t *testing.T) {
	left, right := pair(t)
	left.ip(t, "link add other type veth peer name unused", "link set dev other up", "link set dev unused up", "route add 10.0.2.0/24 dev other metric 500")
	for device, want := range map[string]int{"l": 5, "other": 0} {
		limit := 10 * time.Second
		if want == 0 {
			limit = 300 * time.Millisecond
		}
		p, err := Ping{From: left, To: right4, Device: device, Source: netip.MustParseAddr("10.0.1.1"), Count: 5, Interval: time.Millisecond, Wait: limit / 3}.Run(t.Context())
		if err != nil || p.Received != want {
			t.Errorf("ping by %s: %+v, %v", device, p, err)
		}
		s, err := Stream{From: left, At: right, To: right4, Device: device, Source: netip.MustParseAddr("10.0.1.1"), Count: 5, Wait: limit / 3}.Run(t.Context())
		if err != nil || s.Received != want {
			t.Errorf("stream by %s: %+v, %v", device, s, err)
		}
		r, err := Transfer{From: left, At: right, To: right4, Device: device, Source: netip.MustParseAddr("10.0.1.1"), Bytes: 1000, Limit: limit}.Run(t.Context())
		if (err == nil) != (want > 0) {
			t.Errorf("transfer by %s: %+v, %v", device, r, err)
		}
	}
	if _, err := (Ping{From: left, To: right4, Device: "none", Count: 1}).Run(t.Context()); err == nil {
		t.Error("bound to a device that is not there")
	}
}

func TestOrder(t *testing.T) {
	s := Stream{Size: streamHeader, Flows: 2}
	for numbers, want := range map[string][2]int{"0 2 4 6": {0, 0}, "0 6 2 4 8": {2, 1}, "0 2 8 4 10 6": {2, 1}, "0 4 2 8 6": {2, 2}} {
		var r StreamResult
		seen, latest := map[uint64]bool{}, map[uint64]uint64{}
		for text := range strings.FieldsSeq(numbers) {
			b := make([]byte, streamHeader)
			b[7] = text[len(text)-1] - '0'
			if len(text) > 1 {
				b[7] += 10
			}
			s.take(b, seen, latest, &r)
		}
		if got := [2]int{r.Reordered, r.Overtaking}; got != want {
			t.Errorf("%s: reordered, overtaking %v, want %v", numbers, got, want)
		}
	}
}

// served is a Server in a namespace.
func served(t *testing.T, at space, name string) (port uint16) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ports, ended := make(chan uint16, 1), make(chan error, 1)
	go func() {
		ended <- at.Do(func() error { return Server{Name: name, Ready: func(p uint16) { ports <- p }}.Run(ctx) })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case port = <-ports:
	case err := <-ended:
		t.Fatal(err)
	}
	return port
}

func TestServer(t *testing.T) {
	left, right := pair(t)
	port := served(t, right, "right")
	for _, to := range []netip.Addr{right4, right6} {
		r, err := Transfer{From: left, To: to, Port: port, Bytes: 1 << 20, Limit: 10 * time.Second}.Run(t.Context())
		if err != nil || r.Sent != 2<<20 || r.Received != r.Sent || r.Server != "right" {
			t.Errorf("%v: %+v, %v", to, r, err)
		}
		p, err := Ping{From: left, To: to, Port: port, Count: 20, Size: 500, Interval: time.Millisecond, Wait: time.Second}.Run(t.Context())
		if err != nil || p.Sent != 20 || p.Received != 20 || p.Corrupt+p.Duplicates+len(p.Errors) != 0 || p.MTU != 1500 {
			t.Errorf("%v: %+v, %v", to, p, err)
		}
		nobody := Ping{From: left, To: to, Port: port + 1, Count: 1, Wait: 300 * time.Millisecond}
		if p, err := nobody.Run(t.Context()); err != nil || p.Received != 0 || len(p.Errors) == 0 || p.Errors[0].Kind() != Unreachable {
			t.Errorf("%v, a port of nobody: %+v, %v", to, p, err)
		}
	}
}

// TestAddressOfAnswer: from the address that was asked, not the one that the
// route back would choose.
func TestAddressOfAnswer(t *testing.T) {
	left, right := pair(t)
	right.ip(t, "addr add 10.0.2.9/24 dev r", "addr add 2001:db8:2::9/64 dev r nodad preferred_lft 0")
	port := served(t, right, "")
	for _, to := range []string{"10.0.2.9", "2001:db8:2::9"} {
		p, err := Ping{From: left, To: netip.MustParseAddr(to), Port: port, Count: 3, Interval: 300 * time.Millisecond, Wait: time.Second}.Run(t.Context())
		if err != nil || p.Received == 0 { // the first may wait for a neighbour
			t.Errorf("%s: %+v, %v", to, p, err)
		}
	}
}

// TestFull: as long as the path takes, by what the host knows, arrives; the
// first one that is longer than a router takes is answered.
func TestFull(t *testing.T) {
	left, right := pair(t)
	port := served(t, right, "")
	for _, to := range []netip.Addr{right4, right6} {
		for _, port := range []uint16{0, port} {
			ping := Ping{From: left, To: to, Port: port, Count: 3, Interval: 20 * time.Millisecond, Full: true, Wait: 300 * time.Millisecond}
			left.ip(t, "route flush cache", "-6 route flush cache")
			// The first is as long as its own link takes, and the router says so.
			r, err := ping.Run(t.Context())
			if err != nil || r.Received != 0 || len(r.Errors) == 0 || r.Errors[0].MTU != 1400 || r.MTU != 1400 {
				t.Errorf("%v port %d: before the path is known: %+v, %v", to, port, r, err)
			}
			if r, err = ping.Run(t.Context()); err != nil || r.Received != 3 || r.MTU != 1400 || len(r.Errors) != 0 {
				t.Errorf("%v port %d: full: %+v, %v", to, port, r, err)
			}
			ping.Beyond = 1
			if r, err = ping.Run(t.Context()); err != nil || r.Sent != 3 || r.Received != 0 || len(r.Errors) == 0 || r.Errors[0].Kind() != TooBig {
				t.Errorf("%v port %d: one octet beyond: %+v, %v", to, port, r, err)
			}
			ping.Beyond = 101 // 1501
			if r, err = ping.Run(t.Context()); err != nil || r.Sent != 0 || r.TooLong != 3 {
				t.Errorf("%v port %d: longer than the interface takes: %+v, %v", to, port, r, err)
			}
		}
	}
}

func TestPingWhile(t *testing.T) {
	left, right := pair(t)
	port := served(t, right, "")
	left4 := 0
	p, err := Ping{From: left, To: right4, Port: port, Count: 5, Interval: time.Millisecond, Wait: time.Second, While: func() bool { left4++; return left4 < 40 }}.Run(t.Context())
	if err != nil || p.Sent < 40 || p.Received != p.Sent || p.Corrupt != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
