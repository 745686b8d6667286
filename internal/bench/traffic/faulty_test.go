package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// bridge is a device in user space: what comes in at "in" goes through work and
// out at "out". back sends to where the packet came from.
type bridge struct {
	in, out int
	work    func(b *bridge, n int, frame []byte)
	n       int
}

func (b *bridge) send(frame []byte) { b.write(b.out, frame) }
func (b *bridge) back(frame []byte) { b.write(b.in, frame) }

func (b *bridge) write(fd int, frame []byte) {
	for {
		_, err := unix.Write(fd, frame)
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			panic(fmt.Sprintf("the bridge cannot send: %v", err))
		}
		return
	}
}

// run bridges until stop. A pause of its would be a fault of the device.
func (b *bridge) run(stop <-chan struct{}) {
	runtime.LockOSThread() // never unlocked: the thread ends
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
		panic(err)
	}
	buffer := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(b.in, buffer, 0)
		select {
		case <-stop:
			return
		default:
		}
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			continue
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		b.n++
		b.work(b, b.n, bytes.Clone(buffer[:n]))
	}
}

// tap opens an interface of the calling thread's namespace.
func tap(t *testing.T, name string) int {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, err := range []error{
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 5000}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index, Protocol: binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

// newBridge makes the device, between the ports that it returns.
func newBridge(t *testing.T) (*bridge, Options) {
	t.Helper()
	around, device := netns.New(t), netns.New(t)
	quietly(t, around, device)
	netns.Veth(t, around, "tx", device, "in")
	netns.Veth(t, around, "rx", device, "out")
	device.Run(t, "ethtool", "-K", "in", "gro", "on") // live frames want it, or XDP
	b := &bridge{}
	device.Do(t, func() { b.in, b.out = tap(t, "in"), tap(t, "out") })
	return b, Options{TX: Port{around.Path, "tx"}, RX: Port{around.Path, "rx"}, Method: Live, CheckEvery: 1, CPU: 1}
}

func gtpu4() Template {
	return Template{
		Name: "gtpu4", Ethernet: toDevice, Size: 200,
		Outer: Outer{Kind: GTPU, Source: addr("192.0.2.1"), Destination: addr("192.0.2.2"), TEID: 0x1101, Container: Uplink, QFI: 9},
		Inner: Inner{Source: addr("10.46.0.1"), Destination: addr("203.0.113.1"), UE: Source},
		TEIDs: 10, UEs: 10, Flows: 100, Order: Random,
	}
}

// every10th does something to 1 in 10 packets, and forwards the others.
func every10th(do func(b *bridge, frame []byte)) func(*bridge, int, []byte) {
	return func(b *bridge, n int, frame []byte) {
		if n%10 != 0 {
			b.send(frame)
			return
		}
		do(b, frame)
	}
}

// flip changes a bit of an octet, counted from the end where it is negative.
func flip(octet int) func(*bridge, int, []byte) {
	return every10th(func(b *bridge, frame []byte) {
		frame[(octet+len(frame))%len(frame)] ^= 0x04
		b.send(frame)
	})
}

// unreachable is an ICMP error about a packet, to its source.
func unreachable(frame []byte) []byte {
	quoted := frame[14:min(len(frame), 14+28)]
	icmp := append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, quoted...)
	binary.BigEndian.PutUint16(icmp[2:], checksum.Of(icmp, 0))
	ip := []byte{0x45, 0, 0, byte(20 + len(icmp)), 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1}
	binary.BigEndian.PutUint16(ip[10:], checksum.Of(ip, 0))
	eth := slices.Concat(frame[6:12], frame[:6], []byte{8, 0})
	return slices.Concat(eth, ip, icmp)
}

// echoRequest is what a UPF asks the gNB of a frame's first addresses (GTP-U over IPv4).
func echoRequest(frame []byte) []byte {
	gtpu := []byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0}
	echo := append(slices.Clone(frame[:14+20+8]), gtpu...)
	binary.BigEndian.PutUint16(echo[14+2:], 20+8+12)
	binary.BigEndian.PutUint16(echo[14+20+4:], 8+12)
	return echo
}

// Each fault that a device has is caught under its own count, and under no other.
func TestFaultyDevice(t *testing.T) {
	const packets, hurt = 1000, 100
	var held [][]byte
	one := gtpu4()
	one.TEIDs, one.UEs, one.Flows = 0, 0, 0 // packets that overtake each other are of one stream
	for name, c := range map[string]struct {
		template Template
		work     func(*bridge, int, []byte)
		want     Outcome // counts; Received where it is not `packets`
		says     string
	}{
		"none":      {gtpu4(), func(b *bridge, _ int, f []byte) { b.send(f) }, Outcome{}, ""},
		"drop":      {gtpu4(), every10th(func(*bridge, []byte) {}), Outcome{Received: packets - hurt, Lost: hurt}, ""},
		"duplicate": {gtpu4(), every10th(func(b *bridge, f []byte) { b.send(f); b.send(f) }), Outcome{Duplicated: hurt}, ""},
		"overtake": {one, func(b *bridge, n int, f []byte) {
			if n%10 == 5 {
				held = append(held, f)
				return
			}
			b.send(f)
			for _, h := range held {
				b.send(h)
			}
			held = nil
		}, Outcome{Reordered: hurt}, ""},
		"TEID":               {gtpu4(), flip(14 + 20 + 8 + 7), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongNumber: hurt}}, "number is that of another packet"},
		"UE address":         {gtpu4(), flip(14 + 20 + 8 + 16 + 15), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongNumber: hurt}}, "number is that of another packet"},
		"QFI":                {gtpu4(), flip(14 + 20 + 8 + 14), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongHeader: hurt}}, "octet 56 is"},
		"inner port":         {gtpu4(), flip(14 + 20 + 8 + 16 + 20 + 3), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongNumber: hurt}}, "number is that"},
		"destination":        {gtpu4(), flip(14 + 19), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongHeader: hurt}}, "octet 33 is"},
		"header checksum":    {gtpu4(), flip(14 + 11), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongChecksum: hurt}}, "IPv4 header checksum is wrong"},
		"inner UDP checksum": {gtpu4(), flip(14 + 20 + 8 + 16 + 20 + 7), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongChecksum: hurt}}, "UDP checksum is wrong"},
		"payload":            {gtpu4(), flip(-20), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongChecksum: hurt}}, "UDP checksum is wrong"},
		"GTP-U length":       {gtpu4(), flip(14 + 20 + 8 + 3), Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongLength: hurt}}, "GTP-U header"},
		"sequence":           {gtpu4(), flip(-7), Outcome{Received: packets - hurt, Corrupt: hurt, Unreadable: hurt, Corruption: map[string]uint64{WrongTag: hurt}}, "tag is hurt"},
		"time":               {gtpu4(), flip(-1), Outcome{Received: packets - hurt, Corrupt: hurt, Unreadable: hurt, Corruption: map[string]uint64{WrongTag: hurt}}, "tag is hurt"},
		"cut short": {gtpu4(), every10th(func(b *bridge, f []byte) { b.send(f[:len(f)-20]) }),
			Outcome{Received: packets - hurt, Corrupt: hurt, Unreadable: hurt, Corruption: map[string]uint64{WrongTag: hurt}}, "cut off"},
		"longer": {gtpu4(), every10th(func(b *bridge, f []byte) { b.send(append(f, 0, 0, 0, 0)) }),
			Outcome{Corrupt: hurt, Corruption: map[string]uint64{WrongLength: hurt}}, "has 200 octets, want 196"},
		"ICMP error": {gtpu4(), every10th(func(b *bridge, f []byte) { b.back(unreachable(f)) }),
			Outcome{Received: packets - hurt, Lost: hurt, Unexpected: hurt, Returned: hurt}, "came back to the sending interface: Ethernet, IPv4, ICMP DestinationUnreachable"},
		"sent back": {gtpu4(), every10th(func(b *bridge, f []byte) { b.back(f) }),
			Outcome{Received: packets - hurt, Lost: hurt, Unexpected: hurt, Returned: hurt}, "came back"},
		"of its own": {gtpu4(), every10th(func(b *bridge, f []byte) { b.send(f); b.send(unreachable(f)) }),
			Outcome{Unexpected: hurt}, "packet that nobody sent came out"},
		"Echo Request of its own": {gtpu4(), every10th(func(b *bridge, f []byte) { b.send(f); b.send(echoRequest(f)) }), Outcome{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := through(t, c.template, c.work, packets)
			want := c.want
			if want.Received == 0 {
				want.Received = packets
			}
			got := Outcome{
				Received: o.Received, Lost: o.Lost, Duplicated: o.Duplicated, Reordered: o.Reordered, Corrupt: o.Corrupt,
				Corruption: o.Corruption, Unreadable: o.Unreadable, Unexpected: o.Unexpected, Returned: o.Returned,
			}
			if fmt.Sprint(got) != fmt.Sprint(want) && !(maps.Equal(got.Corruption, want.Corruption) && equalButCorruption(got, want)) {
				t.Errorf("got  %+v\nwant %+v\n%s", got, want, strings.Join(o.Faults, "\n"))
			}
			if (c.says == "") != (len(o.Faults) == 0) || c.says != "" && !strings.Contains(o.Faults[0], c.says) {
				t.Errorf("it says %q, want %q", o.Faults, c.says)
			}
		})
	}
}

// through sends packets through a bridge that does `work`.
func through(t *testing.T, template Template, work func(*bridge, int, []byte), packets int) Outcome {
	t.Helper()
	b, options := newBridge(t)
	b.work = work
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { b.run(stop); close(done) }()
	defer func() { close(stop); <-done }()
	const rate = 5000
	o, err := open(t, options).Run(context.Background(), Trial{Template: template, Rate: rate, Duration: time.Second * time.Duration(packets) / rate})
	if err != nil {
		t.Fatal(err)
	}
	if o.Sent != uint64(packets) {
		t.Fatalf("%d packets were sent, want %d", o.Sent, packets)
	}
	return o
}

func equalButCorruption(a, b Outcome) bool {
	a.Corruption, b.Corruption = nil, nil
	return fmt.Sprint(a) == fmt.Sprint(b)
}

// A device that holds packets back has that latency, and no other fault.
func TestDelay(t *testing.T) {
	const delay = 3 * time.Millisecond
	o := through(t, gtpu4(), func(b *bridge, _ int, f []byte) {
		time.AfterFunc(delay, func() { b.send(f) })
	}, 200)
	if o.Received != 200 || o.Corrupt != 0 || o.Duplicated != 0 {
		t.Errorf("%+v", o)
	}
	if low := o.Latency.Lower[0]; time.Duration(low) < delay*98/100 {
		t.Errorf("the shortest latency is %v, want %v at least", time.Duration(low), delay)
	}
	if o.Latency.Total() != 200 {
		t.Errorf("%d latencies", o.Latency.Total())
	}
}
