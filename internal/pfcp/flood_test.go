package pfcp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// flood sends hostile datagrams, each from another of the loopback's addresses.
type flood struct {
	sources []netip.Addr
	// build writes the i-th datagram into dst.
	build func(i int, from netip.Addr, dst []byte) []byte
	// limited: most of it is refused for its rate.
	limited bool
}

const (
	floodRate = 20_000 // a second
	floodStep = time.Millisecond
)

// run sends to the server until stop is closed, and returns how many it has sent.
func (f *flood) run(t testing.TB, to netip.Addr, stop <-chan struct{}) int {
	udp, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer udp.Close()
	conn := ipv4.NewPacketConn(udp)
	addr := net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, Port))
	list := make([]ipv4.Message, batchSize)
	memory := make([][]byte, batchSize)
	sent, began := 0, time.Now()
	for {
		select {
		case <-stop:
			return sent
		case <-time.After(floodStep):
		}
		for due := int(time.Since(began).Seconds() * floodRate); sent < due; {
			n := min(batchSize, due-sent)
			for i := range n {
				from := f.sources[(sent+i)%len(f.sources)]
				memory[i] = f.build(sent+i, from, memory[i][:0])
				list[i] = ipv4.Message{
					Buffers: [][]byte{memory[i]}, Addr: addr,
					OOB: (&ipv4.ControlMessage{Src: from.AsSlice()}).Marshal(),
				}
			}
			n, err := conn.WriteBatch(list[:n], 0)
			if err != nil {
				t.Error(err)
				return sent
			}
			sent += n
		}
	}
}

// floods are what hosts send that may speak PFCP and are no SMF of ours.
func floods(t testing.TB, b *bed, m *smf) map[string]*flood {
	var others []netip.Addr
	for host := range byte(240) {
		others = append(others, b.addr(host+10))
	}
	victim := []netip.Addr{m.addr}
	heartbeat := encode(t, message.NewHeartbeatRequest(1, ie.NewRecoveryTimeStamp(time.Unix(2e9, 0)), nil))
	establishment := encode(t, message.NewSessionEstablishmentRequest(0, 0, 0, 1, 0, m.node(), m.cpFSEID(7), uplinkPDR, toCore))
	modification := encode(t, message.NewSessionModificationRequest(0, 0, 1, 1, 0, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewPrecedence(3))))
	numbered := func(at int, data []byte) func(i int, _ netip.Addr, dst []byte) []byte {
		return func(i int, _ netip.Addr, dst []byte) []byte {
			dst = append(dst, data...)
			binary.BigEndian.PutUint32(dst[at:], uint32(i)<<8)
			return dst
		}
	}
	setup := func(node func(i int) string, stamp int64) func(i int, _ netip.Addr, dst []byte) []byte {
		return func(i int, _ netip.Addr, dst []byte) []byte {
			return append(dst, encode(t, message.NewAssociationSetupRequest(uint32(i)&maxSequence,
				ie.NewNodeID("", "", node(i)), ie.NewRecoveryTimeStamp(time.Unix(stamp, 0))))...)
		}
	}
	fresh := func(i int) string { return fmt.Sprintf("smf%d.example.org", i) }
	return map[string]*flood{
		"heartbeats":                  {others, numbered(4, heartbeat), true},
		"heartbeats of the SMF":       {victim, numbered(4, heartbeat), false},
		"associations":                {others, setup(fresh, 1e9), true},
		"establishments":              {others, numbered(12, establishment), true},
		"modifications":               {others, numbered(12, modification), true},
		"modifications of the SMF":    {victim, numbered(12, modification), false},
		"claims of the SMF's address": {victim, setup(fresh, 1e9+1), true},
		"claims of the SMF's Node ID": {others, setup(func(int) string { return "smf.example.org" }, 1e9+1), true},
		"another version":             {others, numbered(4, append([]byte{0x40}, heartbeat[1:]...)), true},
		"garbage": {others, func(_ int, _ netip.Addr, dst []byte) []byte {
			for range 64 {
				dst = append(dst, byte(rand.Uint32()))
			}
			return dst
		}, true},
	}
}

const (
	floodTime = time.Second
	// inTime is T1: an SMF that has an answer by then does not send again.
	inTime = 3 * time.Second
	// disk is how long it takes to save an association.
	disk = 200 * time.Microsecond
)

// TestFlood: whatever hosts send that may speak PFCP, an SMF's heartbeats are
// answered, its establishments go on, and one that smfs names associates.
func TestFlood(t *testing.T) {
	for what := range floods(t, &bed{addr: loopbacks()}, &smf{addr: netip.MustParseAddr("127.0.0.1")}) {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, naming(3), func(c *Config, u *fakeUPF) { c.RetryAfter, u.disk = time.Second, disk })
			m, named := b.smf(2), b.smf(3)
			_ = m.udp.SetReadBuffer(socketBuffer)
			m.associate()
			wantCause(t, m.set(ie.NewNodeID("", "", "smf.example.org"), 1e9).Cause, ie.CauseRequestAccepted)
			f := floods(t, b, m)[what]
			stop := make(chan struct{})
			sent := 0
			var sender sync.WaitGroup
			sender.Go(func() { sent = f.run(t, b.addr(1), stop) })
			var beat, establishment time.Duration
			rounds, late := uint64(0), 0
			for end := time.Now().Add(floodTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				rounds++
				slow := timed(func() { m.beat() })
				slower := timed(func() { m.establish(rounds, uplinkPDR, toCore) })
				beat, establishment = max(beat, slow), max(establishment, slower)
				if max(slow, slower) > inTime {
					late++
				}
			}
			association := timed(func() { named.associate() })
			close(stop)
			sender.Wait()
			excess := b.event("rate_limited")
			t.Logf("%d datagrams, %d refused; in %d rounds the slowest heartbeat took %v, establishment %v; association %v",
				sent, excess, rounds, beat, establishment, association)
			if sent < floodRate/2 {
				t.Errorf("only %d datagrams sent", sent)
			}
			if late > 0 || association > inTime {
				t.Errorf("an SMF was not answered in time: %d of %d rounds", late, rounds)
			}
			if f.limited != (excess > uint64(sent/2)) || b.event("overflow") > 0 {
				t.Errorf("refused: %d; overflow: %d", excess, b.event("overflow"))
			}
		})
	}
}

// naming lists the address of an SMF by itself, besides everybody.
func naming(host byte) func(*Config, *fakeUPF) {
	return func(c *Config, _ *fakeUPF) {
		a := c.Addresses[0].As4()
		a[3] = host
		c.Allow = append([]netip.Prefix{netip.PrefixFrom(netip.AddrFrom4(a), 32)}, anyone...)
	}
}

// beat sends a heartbeat and waits for its answer.
func (m *smf) beat() {
	m.t.Helper()
	m.ask(message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Unix(1e9, 0)), nil))
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
