package upf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/session"
)

// T3-RESPONSE and N3-REQUESTS of TS 29.281 section 12: how long an answer to an
// Echo Request may take, and how often one is sent until the path counts as
// failed.
const (
	t3Response = 3 * time.Second
	n3Requests = 3
)

// paths are the ways to the GTP-U peers that sessions send to. The data path
// answers what peers ask; what they answer, and what they complain of, comes
// through it to the sockets here.
type paths struct {
	log        *slog.Logger
	now        func() time.Time
	interval   func() time.Duration // between two Echo Requests
	failed     func(netip.Addr)
	recovered  func(netip.Addr)
	indication func(session.PeerTEID)

	mu       sync.Mutex
	sockets  map[netip.Addr]*net.UDPConn // by our address
	peers    map[netip.Addr]*peer
	byNumber []*peer // what tunnels name; nil: free
	// tunnels are the sessions that send to an F-TEID: one as a rule, others in
	// more.
	tunnels map[tunnelKey]uint64
	more    map[tunnelKey]map[uint64]bool

	stats *Stats
}

type tunnelKey struct{ peer, teid uint32 }

// peer is another end of GTP-U.
type peer struct {
	addr     netip.Addr
	number   uint32
	tunnels  int
	sequence uint16
	asked    int       // Echo Requests that have no answer
	next     time.Time // when something is to be done
	down     bool
}

func newPaths(interval func() time.Duration, log *slog.Logger, now func() time.Time, stats *Stats) *paths {
	return &paths{
		log: log, now: now, interval: interval, stats: stats,
		sockets: map[netip.Addr]*net.UDPConn{}, peers: map[netip.Addr]*peer{},
		tunnels: map[tunnelKey]uint64{}, more: map[tunnelKey]map[uint64]bool{},
	}
}

// use notes that a session sends to an F-TEID.
func (p *paths) use(seid uint64, to session.PeerTEID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.peers[to.Addr]
	if q == nil {
		q = &peer{addr: to.Addr, next: p.now()}
		for q.number = 0; int(q.number) < len(p.byNumber) && p.byNumber[q.number] != nil; {
			q.number++
		}
		if int(q.number) == len(p.byNumber) {
			p.byNumber = append(p.byNumber, nil)
		}
		p.byNumber[q.number], p.peers[to.Addr] = q, q
	}
	q.tunnels++
	key := tunnelKey{q.number, to.TEID}
	if _, taken := p.tunnels[key]; taken {
		if p.more[key] == nil {
			p.more[key] = map[uint64]bool{}
		}
		p.more[key][seid] = true
	} else {
		p.tunnels[key] = seid
	}
}

// leave is the reverse of use.
func (p *paths) leave(seid uint64, to session.PeerTEID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.peers[to.Addr]
	if q == nil {
		return
	}
	key := tunnelKey{q.number, to.TEID}
	more := p.more[key]
	switch first, there := p.tunnels[key]; {
	case !there || first != seid && !more[seid]:
		return
	case first != seid:
		delete(more, seid)
	case len(more) > 0:
		for next := range more { // any takes its place
			p.tunnels[key] = next
			delete(more, next)
			break
		}
	default:
		delete(p.tunnels, key)
	}
	if len(more) == 0 {
		delete(p.more, key)
	}
	q.tunnels--
	if q.tunnels == 0 {
		delete(p.peers, to.Addr)
		p.byNumber[q.number] = nil
	}
}

// sessions are those that send to an F-TEID.
func (p *paths) sessions(to session.PeerTEID) []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.peers[to.Addr]
	if q == nil {
		return nil
	}
	key := tunnelKey{q.number, to.TEID}
	first, there := p.tunnels[key]
	if !there {
		return nil
	}
	return slices.AppendSeq([]uint64{first}, maps.Keys(p.more[key]))
}

// run opens a socket for each address, and watches the paths until ctx ends,
// which is no error.
func (p *paths) run(ctx context.Context, addresses func() []netip.Addr) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		every := time.NewTicker(500 * time.Millisecond)
		defer every.Stop()
		for {
			p.open(ctx, group, addresses())
			p.watch()
			select {
			case <-ctx.Done():
				return p.closeAll()
			case <-every.C:
			}
		}
	})
	return group.Wait()
}

// open opens the sockets that are missing, and closes those of addresses that
// are no longer ours.
func (p *paths) open(ctx context.Context, group *errgroup.Group, addresses []netip.Addr) {
	wanted := map[netip.Addr]bool{}
	for _, a := range addresses {
		wanted[a] = true
		if p.socket(a) != nil {
			continue
		}
		socket, err := listen(ctx, a)
		if err != nil {
			p.log.Debug("cannot open the GTP-U socket; will try again", "address", a, "error", err)
			continue
		}
		p.mu.Lock()
		p.sockets[a] = socket
		p.mu.Unlock()
		group.Go(func() error { p.receive(socket); return nil })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, socket := range p.sockets {
		if !wanted[a] {
			delete(p.sockets, a)
			_ = socket.Close() // it was only read and written
		}
	}
}

// listen binds even to an address that is not there yet.
func listen(ctx context.Context, a netip.Addr) (*net.UDPConn, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) {
			level, option := unix.SOL_IP, unix.IP_FREEBIND
			if a.Is6() {
				level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
			}
			set = unix.SetsockoptInt(int(fd), level, option, 1)
		})
		return errors.Join(err, set)
	}}
	network := "udp4"
	if a.Is6() {
		network = "udp6"
	}
	conn, err := c.ListenPacket(ctx, network, netip.AddrPortFrom(a, gtpu.Port).String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

func (p *paths) socket(a netip.Addr) *net.UDPConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sockets[a]
}

func (p *paths) closeAll() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for a, socket := range p.sockets {
		errs = append(errs, socket.Close())
		delete(p.sockets, a)
	}
	return errors.Join(errs...)
}

// send sends a GTP-U message from an address of ours.
func (p *paths) send(to netip.Addr, message []byte) error {
	return p.sendTo(netip.AddrPortFrom(to, gtpu.Port), message)
}

func (p *paths) sendTo(to netip.AddrPort, payload []byte) error {
	p.mu.Lock()
	var socket *net.UDPConn
	var from netip.Addr
	for a, s := range p.sockets { // the lowest, so that a peer sees one
		if a.Is4() == to.Addr().Is4() && (socket == nil || a.Less(from)) {
			socket, from = s, a
		}
	}
	p.mu.Unlock()
	if socket == nil {
		return fmt.Errorf("send to %s: no GTP-U socket of that family is open", to)
	}
	_, err := socket.WriteToUDPAddrPort(payload, to)
	return err
}

// receive reads a socket until it is closed.
func (p *paths) receive(socket *net.UDPConn) {
	b := make([]byte, 2048)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP error about what was sent
			continue
		}
		p.handle(b[:n], from.Addr().Unmap())
	}
}

func (p *paths) handle(b []byte, from netip.Addr) {
	h, ok := gtpu.ParseHeader(b)
	if !ok {
		p.stats.GTPUMalformed.Add(1)
		return
	}
	switch h.Type() {
	case gtpu.EchoResponse:
		sequence, _ := h.Sequence()
		p.answered(from, sequence)
	case gtpu.ErrorIndicationType:
		e, ok := gtpu.ParseErrorIndication(h)
		if !ok {
			p.stats.GTPUMalformed.Add(1)
			return
		}
		p.stats.ErrorIndications.Add(1)
		p.indication(session.PeerTEID{Addr: e.Peer.Unmap(), TEID: e.TEID})
	default:
		p.stats.GTPUIgnored.Add(1)
	}
}

func (p *paths) answered(from netip.Addr, sequence uint16) {
	p.mu.Lock()
	q := p.peers[from]
	if q == nil || q.asked == 0 || sequence != q.sequence {
		p.mu.Unlock()
		p.stats.GTPUIgnored.Add(1)
		return
	}
	was := q.down
	q.down, q.asked, q.next = false, 0, p.now().Add(p.interval())
	p.mu.Unlock()
	if was {
		p.recovered(from)
	}
}

// watch asks the peers that it is time for.
func (p *paths) watch() {
	now := p.now()
	var ask []*peer
	var failed []netip.Addr
	p.mu.Lock()
	for _, q := range p.peers {
		if now.Before(q.next) {
			continue
		}
		if q.asked >= n3Requests && !q.down {
			q.down = true
			failed = append(failed, q.addr)
		}
		if q.asked >= n3Requests {
			q.asked, q.next = 0, now.Add(p.interval())
			continue
		}
		if q.asked == 0 {
			q.sequence++
		}
		q.asked++
		q.next = now.Add(t3Response)
		ask = append(ask, &peer{addr: q.addr, sequence: q.sequence})
	}
	p.mu.Unlock()
	for _, q := range ask {
		if err := p.send(q.addr, gtpu.AppendEchoRequest(nil, q.sequence)); err != nil {
			p.log.Debug("cannot send an Echo Request", "peer", q.addr, "error", err)
			continue
		}
		p.stats.EchoRequests.Add(1)
	}
	for _, a := range failed {
		p.failed(a)
	}
}

// PeerStatus is a GTP-U peer.
type PeerStatus struct {
	Addr    netip.Addr
	Tunnels int
	Down    bool
}

func (p *paths) status() []PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]PeerStatus, 0, len(p.peers))
	for _, q := range p.peers {
		out = append(out, PeerStatus{q.addr, q.tunnels, q.down})
	}
	return out
}

// tunnelsOf are the F-TEIDs that a session's FARs send to, each once.
func tunnelsOf(s *session.Session) []session.PeerTEID {
	var out []session.PeerTEID
	for i := range s.FARs {
		to, ok := tunnelOf(&s.FARs[i])
		for _, have := range out {
			ok = ok && have != to
		}
		if ok {
			out = append(out, to)
		}
	}
	return out
}

func tunnelOf(f *session.FAR) (session.PeerTEID, bool) {
	if f.Forwarding == nil || f.Forwarding.Outer == nil || f.Forwarding.Outer.Kind != session.OuterGTPU {
		return session.PeerTEID{}, false
	}
	return session.PeerTEID{Addr: f.Forwarding.Outer.Addr, TEID: f.Forwarding.Outer.TEID}, true
}

// endMarkers ends the old tunnels of FARs that send elsewhere now (TS 29.281
// section 7.3.2).
func (u *UPF) endMarkers(from, to *session.Session, fars []uint32) {
	for _, id := range fars {
		before, after := byID(from.FARs, id, farID), byID(to.FARs, id, farID)
		if before == nil {
			continue
		}
		old, was := tunnelOf(before)
		if after != nil {
			if now, is := tunnelOf(after); is && now == old {
				continue
			}
		}
		if !was {
			continue
		}
		if err := u.paths.send(old.Addr, gtpu.AppendEndMarker(nil, old.TEID)); err != nil {
			u.stats.SendFailed.Add(1)
			u.log.Debug("cannot send an End Marker", "peer", old.Addr, "error", err)
			continue
		}
		u.stats.EndMarkers.Add(1)
	}
}

// Duplicate sends a copy of a packet where the Duplicating Parameters of its
// FAR say.
func (u *UPF) Duplicate(p Packet) {
	e := u.entry(p.Session)
	if e == nil {
		return
	}
	tpdu := e.tpdu(p)
	if tpdu == nil {
		return
	}
	e.mu.Lock()
	var far *session.FAR
	if !e.gone {
		far = u.farOf(e, p.Rule)
	}
	e.mu.Unlock()
	if far == nil || far.Action&session.Duplicate == 0 {
		return
	}
	for i := range far.Duplicates {
		if err := u.duplicate(&far.Duplicates[i], tpdu); err != nil {
			u.stats.SendFailed.Add(1)
			u.log.Debug("cannot send a duplicate", "error", err)
			continue
		}
		u.stats.Duplicates.Add(1)
	}
}

func (u *UPF) duplicate(to *session.Forwarding, tpdu []byte) error {
	o := to.Outer
	if o == nil {
		return errors.New("duplicating parameters without an outer header")
	}
	if o.Kind == session.OuterUDP {
		return u.paths.sendTo(netip.AddrPortFrom(o.Addr, o.Port), tpdu)
	}
	message, err := gtpu.AppendGPDU(nil, o.TEID, gtpu.PDUSessionContainer{}, tpdu)
	if err != nil {
		return err
	}
	return u.paths.send(o.Addr, message)
}

// packetAt is the IP packet at an offset of a frame, without what is behind it;
// nil: there is none, or not all of it.
func packetAt(b []byte, at int) []byte {
	if at < 0 || len(b) < at+20 {
		return nil
	}
	b = b[at:]
	length := int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 == 6 {
		length = 40 + int(binary.BigEndian.Uint16(b[4:]))
	}
	if length > len(b) || length < 20 {
		return nil
	}
	return b[:length]
}

// errorIndicated tells the SMFs of sessions whose tunnel a peer does not know;
// a peer may say so of each packet.
func (u *UPF) errorIndicated(to session.PeerTEID) {
	for _, seid := range u.paths.sessions(to) {
		e := u.entry(seid)
		if e == nil {
			continue
		}
		now := u.now().UnixNano()
		last := atomic.LoadInt64(&e.indicated)
		if now-last < int64(indicationPause) || !atomic.CompareAndSwapInt64(&e.indicated, last, now) {
			continue
		}
		u.report(e, session.Report{SEID: seid, ErrorIndications: []session.PeerTEID{to}})
	}
}

// indicationPause is how long a session's next Error Indication is not told.
const indicationPause = 5 * time.Second
