package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
)

// numbered is a T-PDU with a flow and a number, in SRv6 to the SID of forwarding().
func numbered(flow uint16) []byte {
	return packet.Frame(packet.Ethernet{}, packet.IPv6{Src: addr("2001:db8::7"), Dst: addr("fc00:a:100::")},
		packet.SRH{Segments: []netip.Addr{addr("2001:db8::98"), addr("fc00:a:100::")}},
		packet.IPv4{Src: addr("192.0.2.7"), Dst: addr("198.51.100.1")},
		packet.UDP{Sport: flow, Dport: 9000}, packet.Payload{Count: 16})
}

// order counts, of frames with a number in their last octets, those that come late.
type order struct {
	last             map[uint16]uint64
	got, late, twice int
}

func (o *order) see(frame []byte) {
	flow := binary.BigEndian.Uint16(frame[len(frame)-24:])
	n := binary.BigEndian.Uint64(frame[len(frame)-8:])
	o.got++
	switch last := o.last[flow]; {
	case n == last:
		o.twice++
	case n < last:
		o.late++
	default:
		o.last[flow] = n
	}
}

// receive sees all that comes until nothing does.
func (o *order) receive(fd int) {
	buf := make([]byte, 2048)
	for {
		k, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		if k == len(numbered(0)) && binary.BigEndian.Uint16(buf[12:]) == 0x86dd {
			o.see(buf[:k])
		}
	}
}

// crossSpread sends numbered packets through an interface of d's until disturb is over,
// and demands that each arrives, and in the order of its flow. The data path counts
// those that had no room in a queue.
func crossSpread(t *testing.T, d *DataPlane, w *wire, disturb func() *DataPlane) {
	t.Helper()
	var tx, rx int
	w.do(t, func() {
		forwarding(t, d, w)
		_, err := d.XDP.Attach(w.near.Index, attach.ModeNative)
		must(t, err)
		w.ns.Run(t, "ethtool", "-K", "far", "gro", "on")
		tx, rx = packetSocket(t, w.far.Index), packetSocket(t, w.far.Index)
		must(t, unix.SetsockoptInt(rx, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
		must(t, unix.SetsockoptTimeval(rx, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 500000}))
	})
	stop, sent := make(chan struct{}), make(chan int)
	go func() { sent <- sendNumbered(tx, w.far.Index, stop) }()
	seen, quiet := order{last: map[uint16]uint64{}}, make(chan struct{})
	go func() {
		defer close(quiet)
		seen.receive(rx)
	}()
	d = disturb()
	close(stop)
	n := <-sent
	<-quiet
	stats, err := unix.GetsockoptTpacketStats(rx, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	must(t, err)
	outcomes, err := d.Outcomes()
	must(t, err)
	full := int(outcomes[abi.ReasonREASON_QUEUE_FULL].Packets)
	veth := refusedBy(t, w)
	t.Logf("%d sent, %d arrived, %d late, %d of no room in a queue, %d in the veth, %d not kept by the socket",
		n, seen.got, seen.late, full, veth, stats.Drops)
	if n < 10000 || seen.got+full+veth+int(stats.Drops) != n {
		t.Errorf("%d packets sent, %d arrived, %d found a full queue, %d a full veth, the socket dropped %d", n, seen.got, full, veth, stats.Drops)
	}
	if seen.late+seen.twice > 0 {
		t.Errorf("%d packets were overtaken, %d came twice", seen.late, seen.twice)
	}
	if lost, err := d.Spread.Settle(); lost != 0 || err != nil {
		t.Errorf("the kernel lost %d: %v", lost, err)
	}
}

// refusedBy is how many redirected frames the veth had no room for: on a busy machine
// whoever empties it gets its turn late.
func refusedBy(t *testing.T, w *wire) (frames int) {
	t.Helper()
	const field = "xdp_xmit_errors:"
	statistics := w.ns.Run(t, "ethtool", "-S", "near")
	_, value, found := strings.Cut(statistics, field)
	if _, err := fmt.Sscan(value, &frames); !found || err != nil {
		t.Fatalf("no %s in %s", field, statistics)
	}
	return frames
}

// sendNumbered sends frames of 40 flows until stop, and returns how many. It leaves time
// for those that receive.
func sendNumbered(fd, ifindex int, stop <-chan struct{}) int {
	frames := make([][]byte, 40)
	for i := range frames {
		frames[i] = numbered(uint16(i))
	}
	for n := 1; ; n++ {
		select {
		case <-stop:
			return (n - 1) * len(frames)
		default:
		}
		for _, f := range frames {
			binary.BigEndian.PutUint64(f[len(f)-8:], uint64(n))
			for unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: ifindex}) != nil {
			}
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// TestSpreadLosesNothing moves buckets, splits them, changes the CPUs and ends it all
// while packets pass.
func TestSpreadLosesNothing(t *testing.T) {
	w, d := newWire(t), open(t)
	crossSpread(t, d, w, func() *DataPlane {
		disturbSpread(t, d)
		return d
	})
}

// TestSpreadOverUpgrade restarts the daemon, with this build and with others, while
// packets pass.
func TestSpreadOverUpgrade(t *testing.T) {
	w, path := newWire(t), pinPath(t)
	d := openPinned(t, path)
	crossSpread(t, d, w, func() *DataPlane {
		for _, edit := range []func(*ebpf.CollectionSpec){nil, otherBuild, otherBuild, nil} {
			must(t, d.Spread.Set(spread.Config{By: spread.UE, CPUs: allCPUs()}))
			time.Sleep(100 * time.Millisecond)
			must(t, d.Close())
			d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: edit})
			before := d.Spread.Queues()
			time.Sleep(100 * time.Millisecond)
			for i, q := range d.Spread.Queues() {
				if q.In == before[i].In {
					t.Errorf("CPU %d gets nothing after a restart", q.CPU)
				}
			}
		}
		// what an earlier daemon spread, this one does not
		must(t, d.Close())
		d = openPinned(t, path)
		must(t, d.Spread.Set(spread.Config{}))
		for i, b := range d.Spread.Buckets() {
			if b.CPU != -1 || b.Split || b.In != b.Done {
				t.Errorf("bucket %d after the end: %+v", i, b)
			}
		}
		if q := d.Spread.Queues(); len(q) != 0 {
			t.Errorf("queues after the end: %v", q)
		}
		return d
	})
}

// disturbSpread spreads over one CPU, two, others, by flow, and ends.
func disturbSpread(t *testing.T, d *DataPlane) {
	t.Helper()
	cpus := allCPUs()
	random := rand.New(rand.NewPCG(1, 2))
	for round, c := range []spread.Config{
		{By: spread.UE, CPUs: cpus[:1]}, {By: spread.UE, CPUs: cpus}, {By: spread.Flow, CPUs: cpus},
		{By: spread.UE, CPUs: cpus[1:]}, {}, {By: spread.UE, CPUs: cpus}, {},
	} {
		must(t, d.Spread.Set(c))
		if err := d.Spread.Weak(); err != nil {
			t.Error(err)
		}
		for range 100 {
			if c.By != spread.Off {
				stirSpread(d, random, c.CPUs)
			}
			time.Sleep(2 * time.Millisecond)
			_, err := d.Spread.Settle()
			must(t, err)
		}
		for _, q := range d.Spread.Queues() {
			if q.In == 0 {
				t.Errorf("round %d: CPU %d got nothing", round, q.CPU)
			}
		}
	}
}

// stirSpread moves each bucket that has had packets, and splits some.
func stirSpread(d *DataPlane, random *rand.Rand, cpus []int) {
	for i, b := range d.Spread.Buckets() {
		if b.In == 0 {
			continue
		}
		if i < spread.Buckets && random.IntN(8) == 0 {
			d.Spread.Split(i)
		} else {
			d.Spread.Move(i, cpus[random.IntN(len(cpus))])
		}
	}
}

func allCPUs() []int {
	cpus := make([]int, len(mustCPUs()))
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}

// spreader runs the program that sends packets to CPUs, on frames of tests.
type spreader struct {
	d       *DataPlane
	frames  *xdp.Program
	ifindex int
}

func newSpreader(t *testing.T, d *DataPlane, ifindex int) *spreader {
	t.Helper()
	programs, err := d.loadLater(abi.ProgCulvertSpread)
	must(t, err)
	t.Cleanup(func() { programs[abi.ProgCulvertSpread].Close() })
	return &spreader{d, xdp.New(programs[abi.ProgCulvertSpread]), ifindex}
}

// buckets are those that counted a frame: none if it stayed.
func (s *spreader) buckets(t *testing.T, frame []byte) (in []int) {
	t.Helper()
	before := s.d.Spread.Buckets()
	verdict, _, err := s.frames.Test(frame, s.ifindex)
	must(t, err)
	for i, b := range s.d.Spread.Buckets() {
		if b.In != before[i].In {
			in = append(in, i)
		}
	}
	if verdict != xdp.VerdictRedirect && len(in) > 0 {
		t.Errorf("%s, and counted in %v", xdp.VerdictName(verdict), in)
	}
	return in
}

// TestSpreadBuckets: what belongs together is in one bucket, and what is the host's, or
// cannot be told apart, stays where it was received.
func TestSpreadBuckets(t *testing.T) {
	w := newWire(t)
	d := openWith(t, Options{Limits: smallLimits})
	g := func(teid uint32, port uint16, change func(*packet.GTPU)) []byte {
		header := packet.GTPU{TEID: teid, Container: &packet.PDUSession{Type: 1, QFI: 1}}
		if change != nil {
			change(&header)
		}
		return packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")},
			packet.UDP{Sport: 2152, Dport: 2152}, header, packet.IPv4{Src: addr("10.45.0.7"), Dst: addr("192.0.2.1")},
			packet.UDP{Sport: port, Dport: 80}, packet.Payload{Count: 100})
	}
	kind := func(n uint8) func(*packet.GTPU) { return func(h *packet.GTPU) { h.Type = &n } }
	to4 := func(src, dst string, port uint16) []byte {
		return packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr(src), Dst: addr(dst)}, packet.UDP{Sport: port, Dport: 80}, packet.Payload{Count: 9})
	}
	sr := func(src, dst string, port uint16) []byte {
		return packet.Frame(packet.Ethernet{}, packet.IPv6{Src: addr("2001:db8::7"), Dst: addr("fc00:a:100::")},
			packet.IPv4{Src: addr(src), Dst: addr(dst)}, packet.UDP{Sport: port, Dport: 80}, packet.Payload{Count: 9})
	}
	tagged := func(frame []byte) []byte {
		return slices.Concat(frame[:12], []byte{0x81, 0, 0, 100}, frame[12:])
	}
	w.do(t, func() {
		forwarding(t, d, w)
		sp := newSpreader(t, d, w.near.Index)
		if in := sp.buckets(t, g(1, 1, nil)); in != nil {
			t.Errorf("nothing is spread, and bucket %v counted", in)
		}
		must(t, d.Spread.Set(spread.Config{By: spread.UE, CPUs: allCPUs()}))
		for name, frame := range map[string][]byte{
			"Echo Request": g(1, 1, kind(1)), "Error Indication": g(1, 1, kind(26)),
			"ARP": append(make([]byte, 12), 8, 6, 0, 1), "short": make([]byte, 20), "link-local": to4("10.45.0.7", "169.254.0.1", 1),
		} {
			if in := sp.buckets(t, frame); in != nil {
				t.Errorf("%s: in bucket %v", name, in)
			}
		}
		for _, row := range []struct {
			name string
			same bool
			a, b []byte
		}{
			{"flows of a TEID", true, g(7, 1, nil), g(7, 2, nil)},
			{"its End Marker", true, g(7, 1, nil), g(7, 2, kind(254))},
			{"a VLAN tag", true, g(7, 1, nil), tagged(g(7, 2, nil))},
			{"two TEIDs", false, g(7, 1, nil), g(8, 1, nil)},
			{"flows to a UE", true, to4("192.0.2.1", "10.45.0.7", 1), to4("192.0.2.9", "10.45.0.7", 2)},
			{"two UEs", false, to4("192.0.2.1", "10.45.0.7", 1), to4("192.0.2.1", "10.45.0.8", 1)},
			{"flows to a UE, in SRv6", true, sr("192.0.2.1", "10.45.0.7", 1), sr("192.0.2.9", "10.45.0.7", 2)},
			{"... and without", true, sr("192.0.2.1", "10.45.0.7", 1), to4("192.0.2.1", "10.45.0.7", 1)},
			{"flows of no UE", false, to4("192.0.2.1", "198.51.100.7", 1), to4("192.0.2.1", "198.51.100.7", 2)},
			{"... in SRv6", false, sr("192.0.2.1", "198.51.100.7", 1), sr("192.0.2.1", "198.51.100.7", 2)},
		} {
			a, b := sp.buckets(t, row.a), sp.buckets(t, row.b)
			if len(a) != 1 || len(b) != 1 || (a[0] == b[0]) != row.same {
				t.Errorf("%s: in buckets %v and %v", row.name, a, b)
			}
		}
		must(t, d.Spread.Set(spread.Config{By: spread.Flow, CPUs: allCPUs()}))
		if a, b := sp.buckets(t, g(7, 1, nil)), sp.buckets(t, g(7, 2, nil)); a[0] == b[0] {
			t.Errorf("by flow: flows of a TEID are both in %v", a)
		}
		must(t, d.Ports.Set(w.near.Index, port.Port{MAC: [6]byte(w.near.HardwareAddr)}))
		if in := sp.buckets(t, g(7, 1, nil)); in != nil {
			t.Errorf("a frame for another device: in bucket %v", in)
		}
	})
}

func TestSpreadRefuses(t *testing.T) {
	d := open(t)
	for want, c := range map[string]spread.Config{
		"no CPU is named":         {By: spread.UE},
		"CPU 4000 does not exist": {By: spread.UE, CPUs: []int{0, 4000}},
		"CPU -1 does not exist":   {By: spread.Flow, CPUs: []int{-1}},
	} {
		if err := d.Spread.Set(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	if q := d.Spread.Queues(); len(q) != 0 {
		t.Errorf("queues after errors: %v", q)
	}
}

// TestSpreadMovesWhatIsEmpty: a bucket waits for its packets that are on their way, or
// that the kernel has lost.
func TestSpreadMovesWhatIsEmpty(t *testing.T) {
	w := newWire(t)
	d := open(t)
	w.do(t, func() {
		forwarding(t, d, w)
		cpus := allCPUs()
		must(t, d.Spread.Set(spread.Config{By: spread.UE, CPUs: cpus}))
		s := newSpreader(t, d, w.near.Index)
		frame := numbered(1)
		bucket := s.buckets(t, frame)[0]
		before := d.Spread.Buckets()[bucket].Moves
		demand := func(what string, cpu int, in uint64, moves uint32) {
			t.Helper()
			if b := d.Spread.Buckets()[bucket]; b.CPU != cpu || b.In != in || b.Moves-before != moves {
				t.Errorf("%s: %+v, want CPU %d, %d packets, %d moves more", what, b, cpu, in, moves)
			}
		}
		handled := func(n uint64) { d.spreadTables.Buckets.Store(uint32(bucket), 8, n) }
		settle := func() uint64 {
			lost, err := d.Spread.Settle()
			must(t, err)
			return lost
		}
		from := d.Spread.Buckets()[bucket].CPU
		to := cpus[(from+1)%len(cpus)]
		d.Spread.Move(bucket, to)
		s.buckets(t, frame)
		settle()
		demand("two on their way", from, 2, 0)
		handled(2)
		s.buckets(t, frame)
		demand("none on its way", to, 3, 1)
		handled(3)
		d.Spread.Move(bucket, from)
		settle()
		demand("no packet comes", from, 3, 2)
		s.buckets(t, frame)
		s.buckets(t, frame)
		handled(4) // of 5
		d.Spread.Move(bucket, to)
		for range 20 {
			settle()
			time.Sleep(6 * time.Millisecond)
		}
		if lost := settle(); lost != 1 {
			t.Errorf("%d packets are lost, want 1", lost)
		}
		demand("one was lost", to, 5, 3)
	})
}

// TestSpreadSplits sends the flows of one UE to buckets of their own.
func TestSpreadSplits(t *testing.T) {
	w := newWire(t)
	d := open(t)
	w.do(t, func() {
		forwarding(t, d, w)
		must(t, d.Spread.Set(spread.Config{By: spread.UE, CPUs: allCPUs()}))
		s := newSpreader(t, d, w.near.Index)
		ue := func(port uint16) []byte {
			return packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("192.0.2.1"), Dst: addr("10.45.0.7")}, packet.UDP{Sport: port, Dport: 80})
		}
		whole := s.buckets(t, ue(1))
		d.spreadTables.Buckets.Store(uint32(whole[0]), 8, 1) // handled
		d.Spread.Split(whole[0])
		settled := map[int]bool{}
		for port := range uint16(50) {
			in := s.buckets(t, ue(port))
			if len(in) != 2 || in[0] != whole[0] || in[1] < spread.Buckets {
				t.Fatalf("flow %d: in buckets %v", port, in)
			}
			settled[in[1]] = true
		}
		if len(settled) < 25 {
			t.Errorf("50 flows are in %d buckets", len(settled))
		}
		if again := s.buckets(t, ue(7)); !settled[again[1]] {
			t.Errorf("a flow changed to bucket %d", again[1])
		}
	})
}

// TestSpreadQueueIsFull: what has no room is dropped and counted, and nothing of it
// stays in the counts.
func TestSpreadQueueIsFull(t *testing.T) {
	w := newWire(t)
	d := open(t)
	w.do(t, func() {
		forwarding(t, d, w)
		must(t, d.Spread.Set(spread.Config{By: spread.UE, CPUs: allCPUs()[:1]}))
		s := newSpreader(t, d, w.near.Index)
		for range spread.Room {
			if s.buckets(t, numbered(1)) == nil {
				t.Fatal("dropped while there is room")
			}
		}
		for range 3 {
			if in := s.buckets(t, numbered(1)); in != nil {
				t.Errorf("a full queue takes one more, of bucket %v", in)
			}
		}
		if q := d.Spread.Queues()[0]; q.In != spread.Room || q.Full != 3 {
			t.Errorf("%+v, want %d packets and 3 too many", q, spread.Room)
		}
		outcomes, err := d.Outcomes()
		must(t, err)
		if got, octets := outcomes[abi.ReasonREASON_QUEUE_FULL], uint64(3*len(numbered(1))); got.Packets != 3 || got.Bytes != octets {
			t.Errorf("queue_full counts %+v, want 3 packets, %d octets", got, octets)
		}
		d.spreadTables.Queues.Store(0, 8, 10) // of them are handled
		if s.buckets(t, numbered(1)) == nil {
			t.Error("dropped though there is room again")
		}
	})
}
