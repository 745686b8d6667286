package pfcp

import (
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/session"
)

// everything is what a user plane could have.
var everything = session.Features{
	UEAddresses: true, FramedRouting: true, PrefixLength: true, EndMarkers: true, NotificationDelay: true,
	NumberOfPackets: true, QuotaValidity: true, QuotaAction: true, Duplication: true, PacketRate: true,
	PathReports: true,
}

// fakeUPF holds what it is given, and refuses what a test names.
type fakeUPF struct {
	features session.Features
	v4, v6   netip.Addr // of G-PDUs

	mu       sync.Mutex
	sessions map[uint64]*session.Session
	teids    map[uint32]bool
	ues      map[netip.Prefix]bool
	lastTEID uint32
	lastUE   uint32
	state    map[string][]byte
	written  int           // octets of states
	disk     time.Duration // what writing a state takes
	changes  []session.Modification
	reports  []session.UsageReport // for the next modification or deletion
	refuse   error                 // of Establish, Modify and NewTEID
	poolSize int                   // 0: no bound
}

func newFakeUPF() *fakeUPF {
	return &fakeUPF{
		features: everything,
		v4:       netip.MustParseAddr("10.200.0.8"), v6: netip.MustParseAddr("fd00::8"),
		sessions: map[uint64]*session.Session{}, teids: map[uint32]bool{}, ues: map[netip.Prefix]bool{},
	}
}

func (u *fakeUPF) NewTEID() (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.poolSize > 0 && len(u.teids) >= u.poolSize {
		return 0, ErrNoResources
	}
	for {
		u.lastTEID++
		if !u.teids[u.lastTEID] {
			u.teids[u.lastTEID] = true
			return u.lastTEID, nil
		}
	}
}

func (u *fakeUPF) TakeTEID(teid uint32) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.teids[teid] {
		return ErrTaken
	}
	u.teids[teid] = true
	return nil
}

func (u *fakeUPF) FreeTEID(teid uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.teids[teid] {
		panic(fmt.Sprintf("TEID %d was not taken", teid))
	}
	delete(u.teids, teid)
}

func (u *fakeUPF) GTPUAddresses(session.Interface, string) (netip.Addr, netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.v4, u.v6
}

// settled: what the user plane was given has been given before, in the eyes of the
// race detector, which does not see that a message came over the network.
func (u *fakeUPF) settled() {
	u.mu.Lock()
	defer u.mu.Unlock()
}

func (u *fakeUPF) NewUE(instance string, v4, v6 bool) ([]netip.Prefix, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if instance == "empty" {
		return nil, ErrNoResources
	}
	u.lastUE++
	var list []netip.Prefix
	if v4 {
		list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(u.lastUE >> 8), byte(u.lastUE)}), 32))
	}
	if v6 {
		a := netip.MustParseAddr("2001:db8::").As16()
		a[6], a[7] = byte(u.lastUE>>8), byte(u.lastUE)
		list = append(list, netip.PrefixFrom(netip.AddrFrom16(a), 64))
	}
	for _, ue := range list {
		u.ues[ue] = true
	}
	return list, nil
}

func (u *fakeUPF) TakeUE(ues []netip.Prefix) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, ue := range ues {
		if u.ues[ue] {
			return ErrTaken
		}
	}
	for _, ue := range ues {
		u.ues[ue] = true
	}
	return nil
}

func (u *fakeUPF) FreeUE(ues []netip.Prefix) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, ue := range ues {
		if !u.ues[ue] {
			panic(fmt.Sprintf("%v was not taken", ue))
		}
		delete(u.ues, ue)
	}
}

func (u *fakeUPF) Establish(s *session.Session) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refuse != nil {
		return u.refuse
	}
	if u.sessions[s.SEID] != nil {
		panic("a SEID that is in use")
	}
	u.sessions[s.SEID] = s
	return nil
}

func (u *fakeUPF) Modify(from, to *session.Session, how session.Modification) ([]session.UsageReport, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refuse != nil {
		return nil, u.refuse
	}
	if u.sessions[from.SEID] != from {
		panic("not the session as it is")
	}
	u.sessions[to.SEID] = to
	u.changes = append(u.changes, how)
	reports := u.reports
	u.reports = nil
	return reports, nil
}

func (u *fakeUPF) Delete(s *session.Session, done func([]session.UsageReport, error)) {
	err := u.Drop(s.SEID)
	u.mu.Lock()
	reports := u.reports
	u.reports = nil
	u.mu.Unlock()
	if err != nil {
		reports = nil
	}
	go done(reports, err)
}

func (u *fakeUPF) Drop(seid uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sessions[seid] == nil {
		return ErrNoSession
	}
	delete(u.sessions, seid)
	return nil
}

func (u *fakeUPF) Session(seid uint64) *session.Session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sessions[seid]
}

func (u *fakeUPF) Sessions() iter.Seq[Identity] {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []Identity
	for _, s := range u.sessions {
		list = append(list, Identity{s.SEID, s.CPSEID, s.CPAddr, s.Node, s.NamesApplications()})
	}
	return slices.Values(list)
}

func (u *fakeUPF) SaveState(key string, value []byte) error {
	time.Sleep(u.disk)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.written += len(value); len(value) == 0 {
		delete(u.state, key)
		return nil
	}
	if u.state == nil {
		u.state = map[string][]byte{}
	}
	u.state[key] = slices.Clone(value)
	return nil
}

func (u *fakeUPF) LoadState() (map[string][]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.state), nil
}

func (u *fakeUPF) Features() session.Features { return u.features }

// only is the one session that there is.
func (u *fakeUPF) only(t testing.TB) *session.Session {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.sessions) != 1 {
		t.Fatalf("%d sessions, want one", len(u.sessions))
	}
	for _, s := range u.sessions {
		return s
	}
	return nil
}

// holdsNothing fails unless all that was taken was given back.
func (u *fakeUPF) holdsNothing(t testing.TB) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.sessions)+len(u.teids)+len(u.ues) > 0 {
		t.Errorf("left behind: %d sessions, TEIDs %v, UE addresses %v", len(u.sessions), u.teids, u.ues)
	}
}

// consistent fails unless TEIDs and addresses taken are those in sessions.
func (u *fakeUPF) consistent(t testing.TB) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	teids, ues := map[uint32]bool{}, map[netip.Prefix]bool{}
	for _, s := range u.sessions {
		h := resourcesOf(s)
		for _, teid := range h.teids {
			teids[teid] = true
		}
		for _, ue := range h.ues {
			ues[ue] = true
		}
	}
	if !maps.Equal(teids, u.teids) || !maps.Equal(ues, u.ues) {
		t.Errorf("taken: %v, %v; in sessions: %v, %v", u.teids, u.ues, teids, ues)
	}
}

var lastNet atomic.Uint32

// loopbacks returns a prefix of 127/8 for one test, which no other test uses at
// the same time, not even in another process.
func loopbacks() func(host byte) netip.Addr {
	n := lastNet.Add(1)
	pid := uint32(os.Getpid())
	return func(host byte) netip.Addr {
		return netip.AddrFrom4([4]byte{127, byte(64 + pid%128), byte(pid/128 + n), host})
	}
}

// bed is a server and what a test's SMFs need.
type bed struct {
	t    testing.TB
	addr func(host byte) netip.Addr
	upf  *fakeUPF
	s    *Server
	stop func()
}

// anyone is an Allow for tests in which every sender is an SMF.
var anyone = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newBed(t testing.TB, change ...func(*Config, *fakeUPF)) *bed {
	b := &bed{t: t, addr: loopbacks(), upf: newFakeUPF()}
	b.start(change...)
	return b
}

// start runs a server on the bed's UPF, again after stop.
func (b *bed) start(change ...func(*Config, *fakeUPF)) {
	b.t.Helper()
	cfg := Config{Addresses: []netip.Addr{b.addr(1)}, Allow: anyone, Log: quiet(), Heartbeat: time.Hour}
	for _, f := range change {
		f(&cfg, b.upf)
	}
	s, err := New(cfg, b.upf)
	if err != nil {
		b.t.Fatal(err)
	}
	b.s = s
	done := make(chan error, 1)
	go func() { done <- s.Run(b.t.Context()) }()
	var once sync.Once
	b.stop = func() {
		once.Do(func() {
			s.Close()
			if err := <-done; err != nil {
				b.t.Errorf("the server ended: %v", err)
			}
		})
	}
	b.t.Cleanup(b.stop)
}

// smf is a peer on an address of its own.
type smf struct {
	t    testing.TB
	bed  *bed
	addr netip.Addr
	udp  *net.UDPConn
	to   netip.AddrPort
	seq  uint32
	buf  []byte
	// stamp is the Recovery Time Stamp of its Heartbeat Responses.
	stamp int64
}

func (b *bed) smf(host byte) *smf {
	b.t.Helper()
	a := b.addr(host)
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, Port)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = udp.Close() })
	return &smf{t: b.t, bed: b, addr: a, udp: udp, to: netip.AddrPortFrom(b.addr(1), Port), buf: make([]byte, 65536), stamp: 1e9}
}

func (m *smf) sendRaw(b []byte) {
	m.t.Helper()
	m.bed.upf.settled()
	if _, err := m.udp.WriteToUDPAddrPort(b, m.to); err != nil {
		m.t.Fatal(err)
	}
}

func (m *smf) send(msg message.Message) {
	m.t.Helper()
	m.sendRaw(encode(m.t, msg))
}

func encode(t testing.TB, msg message.Message) []byte {
	t.Helper()
	b := make([]byte, msg.MarshalLen())
	if err := msg.MarshalTo(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// seen gets every message of the server's, if a test wants them.
var seen func([]byte)

// patience is for answers that must come; silence for those that must not.
const (
	patience = 5 * time.Second
	silence  = 100 * time.Millisecond
)

// receive is the next message, or nil after d.
func (m *smf) receive(d time.Duration) message.Message {
	m.t.Helper()
	b := m.receiveRaw(d)
	if b == nil {
		return nil
	}
	msg, err := message.Parse(b)
	if err != nil {
		m.t.Fatalf("not PFCP: %x: %v", b, err)
	}
	return msg
}

func (m *smf) receiveRaw(d time.Duration) []byte {
	_ = m.udp.SetReadDeadline(time.Now().Add(d))
	n, _, err := m.udp.ReadFromUDPAddrPort(m.buf)
	m.bed.upf.settled()
	if err != nil {
		return nil
	}
	b := slices.Clone(m.buf[:n])
	if seen != nil {
		seen(b)
	}
	return b
}

// ask sends a request and returns its answer.
func (m *smf) ask(msg message.Message) message.Message {
	m.t.Helper()
	m.send(msg)
	answer := m.receive(patience)
	for answer != nil && answer.MessageType() == message.MsgTypeHeartbeatRequest {
		m.live(answer)
		answer = m.receive(patience)
	}
	if answer == nil {
		m.t.Fatalf("no answer to a %s", msg.MessageTypeName())
	}
	if answer.MessageType() != msg.MessageType()+1 || answer.Sequence() != msg.Sequence() {
		m.t.Fatalf("%s %d answered by %s %d", msg.MessageTypeName(), msg.Sequence(), answer.MessageTypeName(), answer.Sequence())
	}
	return answer
}

// live answers a Heartbeat Request of the server's.
func (m *smf) live(request message.Message) {
	m.t.Helper()
	m.send(message.NewHeartbeatResponse(request.Sequence(), ie.NewRecoveryTimeStamp(time.Unix(m.stamp, 0))))
}

func (m *smf) next() uint32 {
	m.seq++
	return m.seq
}

func (m *smf) node() *ie.IE { return ie.NewNodeID(m.addr.String(), "", "") }

func (m *smf) associate(more ...*ie.IE) *message.AssociationSetupResponse {
	m.t.Helper()
	list := append([]*ie.IE{m.node(), ie.NewRecoveryTimeStamp(time.Unix(1e9, 0))}, more...)
	answer := m.ask(message.NewAssociationSetupRequest(m.next(), list...)).(*message.AssociationSetupResponse)
	wantCause(m.t, answer.Cause, ie.CauseRequestAccepted)
	return answer
}

func wantCause(t testing.TB, got *ie.IE, want uint8) {
	t.Helper()
	if got == nil {
		t.Fatal("an answer without a Cause")
	}
	if c, err := got.Cause(); err != nil || c != want {
		t.Fatalf("cause %d (%v), want %d", c, err, want)
	}
}

// waitFor fails unless what holds soon.
func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}
