package upf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	dpsettings "github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/smf/replay"
	"github.com/culvert-net/culvert/internal/testutil/fuzzing"
	"github.com/culvert-net/culvert/internal/upf/pool"
)

var (
	n4Messages = flag.Int("messages", 20_000, "PFCP messages of TestRandomN4")
	n4Seed     = flag.Uint64("seed", 1, "where TestRandomN4 starts")
)

const (
	n4Round   = 10_000 // messages between two looks at what is there
	n4Look    = 500    // and a look at what sessions there are
	n4Ahead   = 256    // messages without an answer
	n4Heap    = 256 << 20
	n4Threads = 256
	// n4Patience is how long the server may take to be done.
	n4Patience = 30 * time.Second
)

// n4 is the server, the user plane and the data path, and SMFs that talk
// nonsense.
type n4 struct {
	*UPF
	path   *dataplane.DataPlane
	server *pfcp.Server
	source fuzzing.Source
	smfs   []*nonsense
	sound  [][]byte
	seids  []uint64
}

// nonsense is an SMF's socket.
type nonsense struct {
	net.Conn
	addr     netip.Addr
	sequence uint32
	sent     int64
	answered atomic.Int64
	alive    atomic.Uint32 // sequence number of the last heartbeat or deletion that was answered
}

func newN4(t *testing.T) *n4 {
	t.Helper()
	return newN4With(t, dpsettings.Limits{
		SIDs: 64, Policies: 16, SegmentLists: 16, Tunnels: 64, Routes: 64, Adjacencies: 64, Sessions: 2048, Filters: 2048})
}

// newN4With is a UPF whose tables have these limits.
func newN4With(t *testing.T, limits dpsettings.Limits) *n4 {
	t.Helper()
	n := &n4{source: fuzzing.New(*n4Seed)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	var err error
	n.path, err = dataplane.Open(dataplane.Options{Logger: log, Limits: limits})
	must(err)
	t.Cleanup(func() { must(n.path.Close()) })
	gtpu, ues := []netip.Addr{addr("10.200.0.8"), addr("2001:db8::8")}, []netip.Prefix{netip.MustParsePrefix("10.60.0.0/22"), netip.MustParsePrefix("2001:db8:60::/54")}
	if limits.Sessions >= 2048 { // there is room for those of Open5GS' captures
		ues = append(ues, netip.MustParsePrefix("10.45.0.0/22"), netip.MustParsePrefix("2001:db8:45::/54"))
	}
	must(n.path.SetSettings(dpsettings.Settings{GTPUAddresses: gtpu, Source: addr("2001:db8::8"), UEPools: ues}))
	must(n.path.Sweep())
	n.UPF, err = New(Options{DataPath: joined{n.path}, Journal: t.TempDir(), Logger: log, Sessions: int(limits.Sessions)})
	must(err)
	must(n.SetConfig(Config{Addresses: gtpu, Pools: []pool.Pool{{Prefixes: ues}}}))
	n.server, err = pfcp.New(pfcp.Config{
		Addresses: []netip.Addr{addr("127.93.0.8")}, Allow: []netip.Prefix{netip.MustParsePrefix("127.93.0.0/16")}, Log: log, Heartbeat: time.Hour, RetryAfter: time.Second,
	}, n.UPF)
	must(err)
	n.Start(n.server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- n.server.Run(ctx) }()
	go func() { done <- n.UPF.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done, n.UPF.Close()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	for _, local := range []string{"127.93.0.1", "127.93.0.2"} {
		n.smfs = append(n.smfs, newNonsense(t, addr(local)))
	}
	n.sound = requests(t, "open5gs", "free5gc")
	deletion := []byte{0x21, 54, 0, 12, 15: 0}
	n.sound = append(n.sound, deletion, deletion)
	return n
}

func newNonsense(t *testing.T, local netip.Addr) *nonsense {
	t.Helper()
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, pfcp.Port)),
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr("127.93.0.8"), pfcp.Port)))
	if err != nil {
		t.Fatal(err)
	}
	s := &nonsense{Conn: c, addr: local}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 65536)
		for {
			size, err := c.Read(b)
			if err != nil {
				return
			}
			s.answered.Add(1)
			switch {
			case size >= 8 && b[1] == 2: // Heartbeat Response
				s.alive.Store(binary.BigEndian.Uint32(b[4:]) >> 8)
			case size >= 16 && b[1] == 55: // Session Deletion Response
				s.alive.Store(binary.BigEndian.Uint32(b[12:]) >> 8)
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return s
}

// requests are those of the SMFs of captures, with what names an SMF blank.
func requests(t *testing.T, dialects ...string) (list [][]byte) {
	t.Helper()
	for _, dialect := range dialects {
		c, err := replay.Open(dialect)
		if err != nil {
			t.Fatal(err)
		}
		smf := c.Messages[0].From // who speaks first
		for _, m := range c.Messages {
			if m.From == smf {
				list = append(list, bytes.ReplaceAll(m.Data, smf.AsSlice(), blank))
			}
		}
	}
	if len(list) < 10*len(dialects) {
		t.Fatalf("the captures have %d requests", len(list))
	}
	return list
}

// blank stands for the SMF's address.
var blank = []byte{127, 93, 0, 255}

// associate has an association with each SMF.
func (n *n4) associate(t *testing.T) {
	t.Helper()
	i := slices.IndexFunc(n.sound, func(m []byte) bool { return m[1] == 5 })
	for _, s := range n.smfs {
		s.request(t, bytes.ReplaceAll(n.sound[i], blank, s.addr.AsSlice()))
	}
}

// request sends a message with the next sequence number.
func (s *nonsense) request(t *testing.T, m []byte) {
	t.Helper()
	s.sequence = (s.sequence + 1) & 0xffffff
	at := 4
	if forSession(m) {
		at = 12
	}
	binary.BigEndian.PutUint32(m[at:], s.sequence<<8)
	if _, err := s.Write(m); err != nil {
		t.Fatal(err)
	}
	s.sent++
	for begun := time.Now(); s.sent-s.answered.Load() > n4Ahead; runtime.Gosched() {
		if time.Since(begun) > time.Millisecond {
			s.sent = s.answered.Load() // what came of these is none of ours
		}
	}
}

// answer sends a request until it is answered.
func (s *nonsense) answer(t *testing.T, m []byte) {
	t.Helper()
	s.request(t, m)
	eventually(t, "a request is not answered", func() bool {
		if s.alive.Load() == s.sequence {
			return true
		}
		_, err := s.Write(m)
		return err != nil
	})
}

func forSession(m []byte) bool { return m[0]&1 != 0 && len(m) >= 16 }

// send sends a request, as it was or changed at random, for one of the sessions.
func (n *n4) send(t *testing.T) {
	t.Helper()
	s := n.smfs[n.source.IntN(len(n.smfs))]
	m := n.sound[n.source.IntN(len(n.sound))]
	for !forSession(m) && n.source.IntN(1000) > 0 { // most of these take all sessions down
		m = n.sound[n.source.IntN(len(n.sound))]
	}
	m = bytes.ReplaceAll(m, blank, s.addr.AsSlice())
	if forSession(m) {
		n.another(m)
		if m[1] != 50 && len(n.seids) > 0 { // not a Session Establishment Request
			binary.BigEndian.PutUint64(m[4:], n.seids[n.source.IntN(len(n.seids))])
		}
	}
	if n.source.IntN(3) == 0 {
		const head = 16
		if body := m[min(head, len(m)):]; len(body) > 14 {
			m = append(m[:head:head], fuzzing.Mutate(body, n.source.Mutations(len(body)))...)
		}
		if n.source.IntN(8) > 0 {
			binary.BigEndian.PutUint16(m[2:], uint16(len(m)-4))
		}
	}
	s.request(t, m)
}

// another makes a request one for another UE, with another F-TEID.
func (n *n4) another(m []byte) {
	third, last := byte(n.source.IntN(4)), byte(n.source.IntN(256))
	for at := range len(m) - 4 {
		if bytes.HasPrefix(m[at:], []byte{10, 60, 0}) || bytes.HasPrefix(m[at:], []byte{10, 45, 0}) {
			m[at+1], m[at+2], m[at+3] = 60, third, last
		}
		if bytes.HasPrefix(m[at:], []byte{0, 21, 0, 9, 1}) && at+9 <= len(m) { // F-TEID
			m[at+7], m[at+8] = third, last
		}
	}
}

// look takes note of the sessions that there are.
func (n *n4) look() {
	n.seids = n.seids[:0]
	for s := range n.Sessions() {
		n.seids = append(n.seids, s.SEID)
	}
	slices.Sort(n.seids)
}

// quiet waits until all that was sent has been handled: by the node, which answers
// heartbeats, and by each worker, which knows that a session of its own is not there.
func (n *n4) quiet(t *testing.T) {
	t.Helper()
	for _, s := range n.smfs {
		s.answer(t, []byte{0x20, 1, 0, 12, 0, 0, 0, 0, 0, 96, 0, 4, 0xe0, 0, 0, 0})
		for worker := range runtime.GOMAXPROCS(0) {
			s.answer(t, []byte{0x21, 54, 0, 12, 0xff, 0xff, 0xff, 0xff, 11: byte(worker), 15: 0})
		}
	}
	eventually(t, "sessions are half made, or half gone", func() bool {
		shown := 0
		for _, a := range n.server.Associations() {
			shown += a.Sessions
		}
		return shown == n.Len() && shown == n.path.Usage()["sessions"].Used
	})
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for begun := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > n4Patience {
			t.Fatalf("%s after %v", what, n4Patience)
		}
	}
}

// check: each session is in the data path with all its rules, and nothing grows.
func (n *n4) check(t *testing.T) {
	t.Helper()
	n.quiet(t)
	n.look()
	for _, seid := range n.seids {
		s := n.Session(seid)
		usage, err := n.path.Sessions.Usage(s.SEID)
		if err != nil {
			t.Fatalf("session %d: %v", s.SEID, err)
		}
		for _, p := range s.PDRs {
			if !slices.ContainsFunc(usage, func(u datapath.RuleUsage) bool { return u.Rule == p.ID }) {
				t.Fatalf("session %d: PDR %d is not in the data path: %v", s.SEID, p.ID, usage)
			}
		}
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > n4Heap || runtime.NumGoroutine() > n4Threads {
		t.Fatalf("%d octets of heap, %d goroutines", m.HeapAlloc, runtime.NumGoroutine())
	}
	if p := n.server.Stats().Events["panic"]; p > 0 {
		t.Fatalf("the reader could not bear %d messages", p)
	}
}

// TestRandomN4 sends sound requests and such as were changed at random to the
// server, with the user plane and the data path behind it: what it says it has is
// there, whole, and in the end nothing is left over. `-messages 10000000` goes on
// for longer.
func TestRandomN4(t *testing.T) {
	n := newN4(t)
	most := 0
	for sent := 0; sent < *n4Messages; {
		n.associate(t)
		for range min(n4Round, *n4Messages-sent) {
			n.send(t)
			if sent++; sent%n4Look == 0 {
				n.look()
			}
		}
		n.check(t)
		most = max(most, len(n.seids))
	}
	accepted := map[string]uint64{}
	for _, a := range n.server.Stats().Answers {
		if a.Cause == 1 {
			accepted[a.Message] += a.Count
		}
	}
	t.Logf("up to %d sessions at a time; accepted: %v", most, accepted)
	for _, often := range []string{"session establishment response", "session modification response", "session deletion response"} {
		if accepted[often] == 0 {
			t.Errorf("no %s accepts: what is behind is not tried", often)
		}
	}
	for _, seid := range n.seids {
		if err := n.Drop(seid); err != nil && !errors.Is(err, pfcp.ErrNoSession) {
			t.Error(err)
		}
	}
	n.seids = nil
	eventually(t, "something is left in the data path", func() bool {
		for _, name := range []string{"sessions", "pdr", "pdr_by_teid", "pdr_by_ue", "filter", "meter"} {
			if n.path.Usage()[name].Used != 0 {
				return false
			}
		}
		return true
	})
}

// joined is a data path with the methods of its frames and punts.
type joined struct{ *dataplane.DataPlane }

func (j joined) Inject(frame []byte, ifindex int) error { return j.Frames.Inject(frame, ifindex) }
func (j joined) InjectKept(frame []byte, ifindex int) error {
	return j.Frames.InjectKept(frame, ifindex)
}
func (j joined) IsSilent(ifindex int) bool { return j.Ports.IsSilent(ifindex) }
func (j joined) SetSliceSID(sid netip.Prefix, slice uint32, vpn bool) {
	j.SIDs.SetSlice(sid, uint16(slice), vpn)
}
func (j joined) Taken(entry uint32)          { j.Sessions.Turns.Taken(entry) }
func (j joined) Shut(id uint64, rule uint16) { j.Sessions.Turns.Shut(id, rule) }

func (j joined) Open(id uint64, rule uint16, force bool) bool {
	return j.Sessions.Turns.Open(id, rule, force)
}
func (j joined) PutSession(s datapath.Session) error { return j.Sessions.Put(s) }
func (j joined) RemoveSession(id uint64, done func([]datapath.RuleUsage, error)) error {
	return j.Sessions.Remove(id, done)
}
func (j joined) DropSession(id uint64) error                          { return j.Sessions.Drop(id) }
func (j joined) SessionUsage(id uint64) ([]datapath.RuleUsage, error) { return j.Sessions.Usage(id) }
func (j joined) SetRuleLimits(id uint64, rule uint16, l datapath.RuleLimits) error {
	return j.Sessions.SetLimits(id, rule, l)
}
func (j joined) SetQuotas(id uint64, q []datapath.Quota) error { return j.Sessions.SetQuotas(id, q) }
func (j joined) Turn(id uint64, forward, buffer *datapath.Rule) (datapath.Turn, bool) {
	return j.Sessions.Turns.Turn(id, forward, buffer)
}
func (j joined) Out(entry uint32) uint64                       { return j.Sessions.Turns.Out(entry) }
func (j joined) LeadsTo(out uint64) (netip.Addr, uint32, bool) { return j.Sessions.Turns.LeadsTo(out) }
func (j joined) RecoverTurn(template uint16, gnb netip.Addr, entry uint32) (bool, error) {
	return j.Sessions.Turns.Recover(template, gnb, entry)
}
func (j joined) OwnerOf(entry uint32) uint64  { id, _ := j.Sessions.RuleAt(entry); return id }
func (j joined) NewTEID() (uint32, error)     { return j.Sessions.NewTEID() }
func (j joined) TakeTEID(teid uint32) error   { return j.Sessions.TakeTEID(teid) }
func (j joined) SessionOf(teid uint32) uint64 { return j.Sessions.OfTEID(teid) }
func (j joined) FreeTEID(teid uint32)         { j.Sessions.FreeTEID(teid) }
