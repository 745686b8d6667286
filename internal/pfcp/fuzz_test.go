package pfcp

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// tap is a socket that keeps what is written.
type tap struct {
	sent  [][]byte
	asked []heartbeatRequest
}

// heartbeatRequest is one of the server's.
type heartbeatRequest struct {
	to       netip.AddrPort
	sequence uint32
}

func (w *tap) ReadBatch([]ipv4.Message, int) (int, error) { return 0, net.ErrClosed }

func (w *tap) WriteBatch(ms []ipv4.Message, _ int) (int, error) {
	for _, m := range ms {
		for _, b := range m.Buffers {
			if h, _, _, err := wire.ReadHeader(b); err == nil && h.Type == message.MsgTypeHeartbeatRequest {
				w.asked = append(w.asked, heartbeatRequest{m.Addr.(*net.UDPAddr).AddrPort(), h.Sequence})
				continue
			}
			w.sent = append(w.sent, slices.Clone(b))
		}
	}
	return len(ms), nil
}

// promptUPF is done with a deletion at once, so that a test need not wait.
type promptUPF struct{ *fakeUPF }

func (u promptUPF) Delete(s *session.Session, done func([]session.UsageReport, error)) {
	done(nil, u.Drop(s.SEID))
}

// stand is a server without goroutines and sockets: all that it does is done
// when step returns.
type stand struct {
	t     testing.TB
	s     *Server
	upf   *fakeUPF
	tap   *tap
	conn  *conn
	d     *dispatcher
	peers []netip.Addr
	// claimed is the Recovery Time Stamp in the last message. Peers confirm odd
	// ones; else they have the first.
	claimed uint32
}

// newStand has associations with two of its three peers.
func newStand(t testing.TB) *stand {
	upf := newFakeUPF()
	cfg := Config{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.8")}, Log: quiet(), Workers: 2, RetryAfter: time.Hour}
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	s := &Server{signalling: alone{}, cfg: cfg, upf: promptUPF{upf}, log: cfg.Log, features: upf.Features()}
	s.stamps.Store(&stamps{Own: 7})
	s.running.Store(true)
	s.smfs.Store(&smfs{allow: anyone})
	s.requests.init(s)
	s.workers = []*worker{newWorker(s, 0), newWorker(s, 1)}
	s.node = newNode(s)
	s.peers.Store(&peers{})
	w := &tap{}
	s.conns = []*conn{{addr: cfg.Addresses[0], batch: w}}
	out := &stand{t: t, s: s, upf: upf, tap: w, conn: s.conns[0], d: newDispatcher(s)}
	for host := range byte(3) {
		out.peers = append(out.peers, netip.AddrFrom4([4]byte{192, 0, 2, host + 1}))
	}
	for _, peer := range out.peers[:2] {
		out.step(peer, encode(t, message.NewAssociationSetupRequest(1, ie.NewNodeID(peer.String(), "", ""), ie.NewRecoveryTimeStamp(time.Unix(1e9, 0)))))
	}
	return out
}

// step hands in a datagram, and returns what is answered.
func (st *stand) step(from netip.Addr, data []byte) [][]byte {
	at := netip.AddrPortFrom(from, Port)
	st.tap.sent = nil
	if _, body, _, err := wire.ReadHeader(data); err == nil {
		st.claimed, _ = readStamp(body)
	}
	st.d.dispatch(st.conn, at, net.UDPAddrFromAddrPort(at), data)
	st.d.flush()
	for st.settle() {
	}
	return st.tap.sent
}

// live answers a Heartbeat Request of the server's.
func (st *stand) live(r heartbeatRequest) {
	stamp := ie.NewRecoveryTimeStamp(time.Unix(1e9, 0))
	if st.claimed&1 != 0 {
		stamp = ie.NewUint32IE(ie.RecoveryTimeStamp, st.claimed)
	}
	st.d.dispatch(st.conn, r.to, net.UDPAddrFromAddrPort(r.to), encode(st.t, message.NewHeartbeatResponse(r.sequence, stamp)))
	st.d.flush()
}

// settle does what waits, and says whether there was something.
func (st *stand) settle() bool {
	n := st.s.node
	if list := st.tap.asked; len(list) > 0 {
		st.tap.asked = list[1:]
		st.live(list[0])
		return true
	}
	for _, w := range st.s.workers {
		select {
		case b := <-w.queue:
			for i := range b.packets {
				w.receive(&b.packets[i])
			}
			b.release()
			w.out.flush(st.s.conns, st.s.lost)
			return true
		case <-w.some:
			w.deleted()
			w.out.flush(st.s.conns, st.s.lost)
			return true
		case f := <-w.tasks:
			f()
			return true
		default:
		}
		if len(w.purges) > 0 {
			w.purgeSome()
			return true
		}
	}
	done := true
	select {
	case b := <-n.queue:
		for i := range b.packets {
			n.receive(&b.packets[i])
		}
		b.release()
	case f := <-n.tasks:
		f()
	default:
		// A task that all workers have finished comes by a goroutine.
		if len(n.busy) == 0 {
			done = false
		} else {
			runtime.Gosched()
		}
	}
	n.finish()
	return done
}

// look is what of the server's state a step is compared by.
func (st *stand) look() map[uint64]*session.Session { return maps.Clone(st.upf.sessions) }

// check hands in a datagram, and fails unless the server stays sound.
func (st *stand) check(from netip.Addr, data []byte) {
	st.t.Helper()
	before := st.look()
	answers := st.step(from, data)
	after := st.look()
	h, _, _, err := wire.ReadHeader(data)
	var wanted int
	if err == nil || errors.Is(err, wire.ErrLength) || errors.Is(err, wire.ErrVersion) {
		switch h.Type {
		case message.MsgTypeHeartbeatRequest:
			if err == nil {
				wanted = 1
			}
		case 3, 5, 7, 9, 14, 50, 52, 54:
			wanted = 1
		}
		if errors.Is(err, wire.ErrVersion) {
			wanted = 1
		}
	}
	if len(answers) != wanted {
		st.t.Fatalf("%d answers to %x, want %d: %x", len(answers), data, wanted, answers)
	}
	st.upf.consistent(st.t)
	if len(answers) == 1 && err == nil {
		st.checkAnswer(h, answers[0], before, after)
	}
	st.checkBounds()
	for _, s := range after {
		b := request.Builder{To: s}
		if b.References(); b.Err != nil {
			st.t.Fatalf("%x left half a session: %v", data, b.Err)
		}
	}
}

// checkAnswer: what an answer says is what was done.
func (st *stand) checkAnswer(h wire.Header, answer []byte, before, after map[uint64]*session.Session) {
	st.t.Helper()
	a, body, rest, err := wire.ReadHeader(answer)
	if err != nil || len(rest) > 0 || a.Type != h.Type+1 || a.Sequence != h.Sequence {
		st.t.Fatalf("answered by %x: %v", answer, err)
	}
	if _, err := message.Parse(answer); err != nil {
		st.t.Fatalf("go-pfcp does not read %x: %v", answer, err)
	}
	accepts := causeOf(body, nil) == nil
	switch h.Type {
	case message.MsgTypeSessionEstablishmentRequest, message.MsgTypeSessionModificationRequest, message.MsgTypeSessionDeletionRequest:
		if !accepts && !maps.Equal(before, after) {
			st.t.Fatalf("refused (%x), and sessions changed", answer)
		}
	}
}

// checkBounds: nothing grows that peers can make grow.
func (st *stand) checkBounds() {
	st.t.Helper()
	s := st.s
	total := 0
	for _, w := range s.workers {
		total += w.sessions.Len()
		if len(w.answers.young.answers) > answerBytes || len(w.b.Names) > wire.MaxNames || len(w.tasks) > 0 || len(w.purges) > 0 {
			st.t.Fatal("a worker keeps too much")
		}
	}
	if total != len(st.upf.sessions) {
		st.t.Fatalf("%d sessions in the server, %d in the UPF", total, len(st.upf.sessions))
	}
	shown := 0
	for _, a := range s.Associations() {
		shown += a.Sessions
	}
	if shown != total {
		st.t.Fatalf("%d sessions are shown, of %d", shown, total)
	}
	if len(s.node.busy) > 0 || len(s.requests.pending) > 0 || len(s.peers.Load().byNode) > maxAssociations {
		st.t.Fatal("the node keeps too much")
	}
	if n := s.counters.panics.Load(); n > 0 {
		st.t.Fatal("the reader could not bear a message")
	}
}

// play reads a sequence of datagrams out of octets and hands them in: each has
// an octet that says from whom and what is put right in it, its length in two
// octets, and its content.
func (st *stand) play(data []byte) (messages int) {
	st.t.Helper()
	for sequence := uint32(10); len(data) >= 3; sequence++ {
		what := data[0]
		n := min(int(binary.BigEndian.Uint16(data[1:])), len(data)-3)
		datagram := slices.Clone(data[3 : 3+n])
		data = data[3+n:]
		peer := st.peers[int(what&3)%len(st.peers)]
		if what&4 != 0 && len(datagram) >= 4 {
			binary.BigEndian.PutUint16(datagram[2:], uint16(len(datagram)-4))
		}
		if seids := slices.Sorted(maps.Keys(st.upf.sessions)); what&8 != 0 && forSession(datagram) && len(seids) > 0 {
			binary.BigEndian.PutUint64(datagram[4:], seids[int(what>>5)%len(seids)])
		}
		if what&16 != 0 && forSession(datagram) {
			binary.BigEndian.PutUint32(datagram[12:], sequence<<8)
		} else if what&16 != 0 && len(datagram) >= 8 {
			binary.BigEndian.PutUint32(datagram[4:], sequence<<8)
		}
		st.check(peer, datagram)
		messages++
	}
	return messages
}

// forSession says whether a wire.Header has a SEID.
func forSession(datagram []byte) bool { return len(datagram) >= 16 && datagram[0]&wire.FlagSEID != 0 }

// sound are the requests of both captures and of the tests above, as the first
// peer sends them.
func sound(t testing.TB) [][]byte {
	st := newStand(t)
	peer := st.peers[0]
	var list [][]byte
	for _, dialect := range []string{"open5gs", "free5gc"} {
		all := conversation(t, dialect)
		for _, s := range all {
			if s.From == all[0].From {
				data := slices.Clone(s.Data)
				list = append(list, replace(data, s.From, peer))
			}
		}
	}
	m := &smf{addr: peer}
	zero := func(msg message.Message) { list = append(list, encode(t, msg)) }
	zero(message.NewSessionDeletionRequest(0, 0, 1, 1, 0))
	zero(message.NewSessionEstablishmentRequest(0, 0, 0, 1, 0, m.node(), m.cpFSEID(1), uplinkPDR, downlinkPDR, toCore, toNobody,
		ie.NewCreateBAR(ie.NewBARID(1)), ie.NewCreateURR(ie.NewURRID(1), ie.NewMeasurementMethod(0, 1, 0), ie.NewReportingTriggers(2, 0)),
		ie.NewCreateQER(ie.NewQERID(1), ie.NewGateStatus(0, 0), ie.NewMBR(1, 2))))
	zero(message.NewSessionModificationRequest(0, 0, 1, 1, 0, ie.NewUpdatePDR(ie.NewPDRID(1), ie.NewQERID(1)),
		ie.NewUpdateURR(ie.NewURRID(1), ie.NewVolumeQuota(1, 9, 0, 0)), ie.NewQueryURR(ie.NewURRID(1)), ie.NewPFCPSMReqFlags(5)))
	zero(message.NewSessionModificationRequest(0, 0, 1, 1, 0, ie.NewRemovePDR(ie.NewPDRID(2)), ie.NewRemoveFAR(ie.NewFARID(2)),
		ie.NewRemoveURR(ie.NewURRID(1)), ie.NewRemoveQER(ie.NewQERID(1)), ie.NewRemoveBAR(ie.NewBARID(1)),
		ie.NewCreatePDR(ie.NewPDRID(7), ie.NewPrecedence(1), ie.NewPDI(ie.NewSourceInterface(0), chooseID(5),
			ie.NewUEIPAddress(0x30, "", "", 0, 0), ie.NewApplicationID("web")), ie.NewFARID(1))))
	zero(message.NewPFDManagementRequest(1, m.node(), pfds("web", "permit out 6 from any 80 to assigned")))
	zero(message.NewAssociationUpdateRequest(1, m.node()))
	zero(message.NewAssociationReleaseRequest(1, m.node()))
	zero(message.NewAssociationSetupRequest(2, m.node(), ie.NewRecoveryTimeStamp(time.Unix(1e9, 0)), ie.New(ie.PFCPSessionRetentionInformation, nil)))
	zero(message.NewHeartbeatRequest(2, ie.NewRecoveryTimeStamp(time.Unix(1e9+1, 0)), nil))
	return list
}

func replace(data []byte, old, new netip.Addr) []byte {
	a, b := old.AsSlice(), new.AsSlice()
	for i := 0; i+4 <= len(data); i++ {
		if slices.Equal(data[i:i+4], a) {
			copy(data[i:], b)
		}
	}
	return data
}

func entry(what byte, datagram []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{what}, uint16(len(datagram))), datagram...)
}

// FuzzServer: any sequence of datagrams leaves the server sound.
func FuzzServer(f *testing.F) {
	var whole []byte
	for _, d := range sound(f) {
		whole = append(whole, entry(4|8|16, d)...)
		f.Add(entry(4|8|16, d))
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, data []byte) { newStand(t).play(data) })
}

var (
	messages  = flag.Int("messages", 20_000, "PFCP messages of TestRandomMessages")
	firstSeed = flag.Uint64("seed", 0, "where TestRandomMessages starts")
)

// TestRandomMessages hands in sound requests with a few octets or IEs changed,
// so that most are read far.
func TestRandomMessages(t *testing.T) {
	requests := sound(t)
	causes := map[string]uint64{}
	for seed := *firstSeed; *messages > 0; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		st := newStand(t)
		for range 200 {
			datagram := slices.Clone(requests[r.IntN(len(requests))])
			if !forSession(datagram) && r.IntN(8) > 0 {
				continue // seldom: most of them take all sessions down
			}
			datagram = mutate(r, datagram)
			what := byte(r.IntN(8)<<5) | 16
			switch {
			case r.IntN(10) > 0:
				what |= 4 | 8
			default:
				what |= byte(r.IntN(16))
			}
			*messages -= st.play(entry(what, datagram))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		for _, a := range st.s.Stats().Answers {
			causes[fmt.Sprint(a.Message, " ", a.Cause)] += a.Count
		}
	}
	t.Log(causes)
	for _, often := range []uint8{message.MsgTypeSessionEstablishmentResponse, message.MsgTypeSessionModificationResponse,
		message.MsgTypeSessionDeletionResponse, message.MsgTypePFDManagementResponse} {
		if causes[messageName(often)+" 1"] == 0 {
			t.Errorf("no %s accepts: what is behind is not tried", messageName(often))
		}
	}
}

// mutate changes a message, or does not.
func mutate(r *rand.Rand, b []byte) []byte {
	for range r.IntN(4) {
		if len(b) <= 16 {
			break
		}
		at := 16 + r.IntN(len(b)-16)
		switch r.IntN(6) {
		case 0:
			b[at] = byte(r.Uint32())
		case 1:
			b[at] ^= 1 << r.IntN(8)
		case 2:
			b = slices.Delete(b, at, min(len(b), at+1+r.IntN(4)))
		case 3:
			b = slices.Insert(b, at, make([]byte, 1+r.IntN(4))...)
		case 4: // an IE away, or twice
			list := topIEs(b[16:])
			if len(list) > 0 {
				i := r.IntN(len(list))
				if r.IntN(2) == 0 {
					list = slices.Delete(list, i, i+1)
				} else {
					list = slices.Insert(list, i, list[i])
				}
				b = append(b[:16:16], slices.Concat(list...)...)
			}
		case 5: // a small number somewhere: IDs that meet others
			b[at] = byte(r.IntN(8))
		}
	}
	return b
}

func topIEs(l wire.IEs) (list [][]byte) {
	for len(l) > 0 {
		octets, err := l.Next()
		if err != nil {
			return list
		}
		list = append(list, octets)
	}
	return list
}
