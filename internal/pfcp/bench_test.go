package pfcp

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"iter"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// nullUPF keeps sessions and does nothing with them, as fast as it can.
type nullUPF struct {
	shards [64]struct {
		mu       sync.Mutex
		sessions map[uint64]*session.Session
		_        [40]byte
	}
	teid atomic.Uint32
}

func newNullUPF() *nullUPF {
	u := &nullUPF{}
	for i := range u.shards {
		u.shards[i].sessions = map[uint64]*session.Session{}
	}
	return u
}

var seed = maphash.MakeSeed()

func (u *nullUPF) do(seid uint64, f func(map[uint64]*session.Session)) {
	shard := &u.shards[maphash.Comparable(seed, seid)%64]
	shard.mu.Lock()
	f(shard.sessions)
	shard.mu.Unlock()
}

func (u *nullUPF) NewTEID() (uint32, error) { return u.teid.Add(1), nil }
func (u *nullUPF) TakeTEID(uint32) error    { return nil }
func (u *nullUPF) FreeTEID(uint32)          {}
func (u *nullUPF) GTPUAddresses(session.Interface, string) (netip.Addr, netip.Addr) {
	return netip.AddrFrom4([4]byte{10, 200, 0, 8}), netip.Addr{}
}
func (u *nullUPF) NewUE(string, bool, bool) ([]netip.Prefix, error) { return nil, ErrNoResources }
func (u *nullUPF) TakeUE([]netip.Prefix) error                      { return nil }
func (u *nullUPF) FreeUE([]netip.Prefix)                            {}
func (u *nullUPF) Establish(s *session.Session) error {
	u.do(s.SEID, func(m map[uint64]*session.Session) { m[s.SEID] = s })
	return nil
}
func (u *nullUPF) Modify(_, to *session.Session, _ session.Modification) ([]session.UsageReport, error) {
	u.do(to.SEID, func(m map[uint64]*session.Session) { m[to.SEID] = to })
	return nil, nil
}
func (u *nullUPF) Delete(s *session.Session, done func([]session.UsageReport, error)) {
	done(nil, u.Drop(s.SEID))
}
func (u *nullUPF) Drop(seid uint64) error {
	u.do(seid, func(m map[uint64]*session.Session) { delete(m, seid) })
	return nil
}
func (u *nullUPF) Session(seid uint64) (s *session.Session) {
	u.do(seid, func(m map[uint64]*session.Session) { s = m[seid] })
	return s
}
func (u *nullUPF) Sessions() iter.Seq[Identity]          { return func(func(Identity) bool) {} }
func (u *nullUPF) SaveState(string, []byte) error        { return nil }
func (u *nullUPF) LoadState() (map[string][]byte, error) { return nil, nil }
func (u *nullUPF) Features() session.Features            { return everything }

// load is an SMF that has many requests under way.
type load struct {
	b     *testing.B
	conn  *ipv4.PacketConn
	to    net.Addr
	in    []ipv4.Message
	out   []ipv4.Message
	bytes [][]byte
}

const window = 256

func newLoad(b *testing.B, from, to netip.Addr) *load {
	b.Helper()
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, Port)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = udp.Close() })
	_ = udp.SetReadBuffer(socketBuffer)
	l := &load{b: b, conn: ipv4.NewPacketConn(udp), to: net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, Port))}
	l.in = make([]ipv4.Message, batchSize)
	for i := range l.in {
		l.in[i].Buffers = [][]byte{make([]byte, 2048)}
	}
	for range window {
		l.bytes = append(l.bytes, make([]byte, 0, 2048))
	}
	l.out = make([]ipv4.Message, window)
	_ = udp.SetReadDeadline(time.Now().Add(time.Hour))
	return l
}

// run sends n requests, made by build, and takes as many answers.
func (l *load) run(n int, build func(i int, dst []byte) []byte, answer func(b []byte)) {
	sent, got := 0, 0
	for got < n {
		room := min(window-(sent-got), n-sent)
		if room >= window/4 || (room > 0 && sent+room == n) {
			for i := range room {
				l.bytes[i] = build(sent+i, l.bytes[i][:0])
				l.out[i] = ipv4.Message{Buffers: [][]byte{l.bytes[i]}, Addr: l.to}
			}
			for left := l.out[:room]; len(left) > 0; {
				k, err := l.conn.WriteBatch(left, 0)
				if err != nil {
					l.b.Fatal(err)
				}
				left = left[k:]
			}
			sent += room
		}
		k, err := l.conn.ReadBatch(l.in, 0)
		if err != nil {
			l.b.Fatal(err)
		}
		for _, m := range l.in[:k] {
			answer(m.Buffers[0][:m.N])
		}
		got += k
	}
}

// BenchmarkServer is the whole server over loopback with one SMF that sends as
// fast as it can, on the same CPUs, before a user plane that does nothing. The
// requests are those of the captures.
func BenchmarkServer(b *testing.B) {
	for _, dialect := range []string{"open5gs", "free5gc"} {
		requests := captured(b, dialect)
		for _, procedure := range []string{"establish", "modify", "delete"} {
			b.Run(dialect+"/"+procedure, func(b *testing.B) { benchmarkServer(b, requests, procedure) })
		}
	}
}

func benchmarkServer(b *testing.B, requests map[uint8][]byte, procedure string) {
	addr := loopbacks()
	s, err := New(Config{Addresses: []netip.Addr{addr(1)}, Allow: []netip.Prefix{netip.PrefixFrom(addr(2), 32)}, Log: quiet(), Heartbeat: time.Hour}, newNullUPF())
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(b.Context()) }()
	defer func() { s.Close(); <-done }()
	l := newLoad(b, addr(2), addr(1))
	node := ie.NewNodeID(addr(2).String(), "", "")
	l.run(1, func(_ int, dst []byte) []byte {
		return append(dst, encode(b, message.NewAssociationSetupRequest(1, node, ie.NewRecoveryTimeStamp(time.Now())))...)
	}, func([]byte) {})

	seids := make([]uint64, b.N)
	sequence := uint32(1)
	request := func(msgType uint8, i int, dst []byte) []byte {
		sequence++
		dst = append(dst, requests[msgType]...)
		binary.BigEndian.PutUint32(dst[12:], sequence<<8)
		if msgType == message.MsgTypeSessionEstablishmentRequest {
			// Node ID first, then the F-SEID: both captures have it so.
			copy(dst[16:], marshalIE(node))
			binary.BigEndian.PutUint64(dst[16+9+4+1:], uint64(i)+1)
			return dst
		}
		binary.BigEndian.PutUint64(dst[4:], seids[i])
		return dst
	}
	check := func(answer []byte, causeAt int) {
		if answer[causeAt] != ie.CauseRequestAccepted {
			b.Fatalf("refused: %x", answer)
		}
	}
	establish := func() {
		l.run(b.N, func(i int, dst []byte) []byte {
			return request(message.MsgTypeSessionEstablishmentRequest, i, dst)
		}, func(answer []byte) {
			check(answer, 16+9+4)
			seids[binary.BigEndian.Uint64(answer[4:])-1] = binary.BigEndian.Uint64(answer[16+9+5+4+1:])
		})
	}
	rest := func(msgType uint8) {
		l.run(b.N, func(i int, dst []byte) []byte { return request(msgType, i, dst) },
			func(answer []byte) { check(answer, 16+4) })
	}
	b.ReportAllocs()
	if procedure != "establish" {
		establish()
	}
	b.ResetTimer()
	before := cpuTime(b)
	switch procedure {
	case "establish":
		establish()
	case "modify":
		rest(message.MsgTypeSessionModificationRequest)
	case "delete":
		rest(message.MsgTypeSessionDeletionRequest)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1000, "cpu-us/op")
}

// cpuTime is what client and server have used of all CPUs: unlike the rate it
// says the same on a machine that does other things too.
func cpuTime(b *testing.B) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func marshalIE(i *ie.IE) []byte {
	b, err := i.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

// captured are the first requests of each kind in a capture, without the
// message priority; deletions are our own, since neither has one.
func captured(t testing.TB, dialect string) map[uint8][]byte {
	t.Helper()
	out := map[uint8][]byte{
		message.MsgTypeSessionDeletionRequest: encode(t, message.NewSessionDeletionRequest(0, 0, 1, 1, 0)),
	}
	for _, m := range conversation(t, dialect) {
		if _, there := out[m.Kind]; !there {
			out[m.Kind] = slices.Clone(m.Data)
		}
	}
	return out
}

// BenchmarkRead compares our reader with go-pfcp's for the same requests.
func BenchmarkRead(b *testing.B) {
	for _, dialect := range []string{"open5gs", "free5gc"} {
		requests := captured(b, dialect)
		for _, msgType := range []uint8{message.MsgTypeSessionEstablishmentRequest, message.MsgTypeSessionModificationRequest} {
			data := requests[msgType]
			b.Run(fmt.Sprintf("%s/%d/ours", dialect, msgType), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := readAll(data); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%d/go-pfcp", dialect, msgType), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := message.Parse(data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// reader is the one Builder of all requests, as each worker has one.
var reader = request.Builder{Decoder: wire.Decoder{Names: map[string]string{}}}

// readAll reads an establishment, or a modification of a session that has the
// rules which the captures change.
func readAll(data []byte) error {
	h, body, _, err := wire.ReadHeader(data)
	if err != nil {
		return err
	}
	b := &reader
	*b = request.Builder{Decoder: wire.Decoder{Names: b.Names}, Features: everything, To: &session.Session{}, Wants: b.Wants[:0]}
	if h.Type == message.MsgTypeSessionEstablishmentRequest {
		b.Establishment(body)
		b.References()
	} else {
		to := *modified
		b.To = &to
		b.Modification(body)
	}
	if b.Err != nil {
		return b.Err
	}
	return nil
}

var modified = &session.Session{
	PDRs: []session.PDR{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}},
	FARs: []session.FAR{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}},
}
