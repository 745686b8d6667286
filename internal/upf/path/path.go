package path

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/stats"
)

// T3-RESPONSE and N3-REQUESTS of TS 29.281 section 12: how long a peer may take
// to answer an Echo Request, and after how many unanswered ones its path has
// failed.
const (
	t3Response = 3 * time.Second
	n3Requests = 3
)

// Options are what Paths needs. All fields are required.
type Options struct {
	Log   *slog.Logger
	Now   func() time.Time
	Stats *stats.Counters
	// Interval returns the time between two Echo Requests to a peer.
	Interval func() time.Duration
	// Failed is called for a peer that stops answering, Recovered for one that
	// answers again, and Indication with the F-TEID in an Error Indication.
	Failed, Recovered func(netip.Addr)
	Indication        func(session.PeerTEID)
	// GPDU is called for a G-PDU that came to a socket, and says whether it took it.
	GPDU func(Received) bool
	// Echo says whether an Echo Request that came to a socket is answered.
	Echo func(Received) bool
	// EndMarker is called for an End Marker that is for a session to send on, and says
	// whether the session takes it from that peer.
	EndMarker func(Received) bool
}

// Received is a GTP-U message that came to a socket.
type Received struct {
	From    netip.Addr
	Message []byte
	TEID    uint32
	// TOS (or traffic class) and TTL (or hop limit) of the packet.
	TOS, TTL uint8
	In       int // index of the interface

	port   uint16 // From's
	socket *net.UDPConn
}

// Paths are the paths to all GTP-U peers that sessions send to.
type Paths struct {
	o Options

	mu       sync.Mutex
	sockets  map[netip.Addr]*net.UDPConn // by our address
	own      []netip.Addr                // our addresses, in the order of the configuration
	peers    map[netip.Addr]*peer
	byNumber []*peer // by the number in tunnelKey; nil: free
	// tunnels has one session that sends to an F-TEID, more has the others.
	tunnels map[tunnelKey]uint64
	more    map[tunnelKey]map[uint64]bool
	former  formerPeers
}

type tunnelKey struct{ peer, teid uint32 }

// tunnel is an F-TEID that a session sends to. control: only what is for the control
// plane goes there.
type tunnel struct {
	session.PeerTEID
	control bool
}

// peer is the node at the other end of a path.
type peer struct {
	addr     netip.Addr
	number   uint32
	tunnels  int
	users    int // tunnels that UEs' packets go to; the path is watched where there are some
	sequence uint16
	asked    int       // Echo Requests without an answer
	next     time.Time // when Watch looks at it again
	down     bool
	answered bool // an Echo Request, once
}

// New makes Paths without peers.
func New(o Options) *Paths {
	return &Paths{
		o: o, sockets: map[netip.Addr]*net.UDPConn{}, peers: map[netip.Addr]*peer{},
		tunnels: map[tunnelKey]uint64{}, more: map[tunnelKey]map[uint64]bool{}, former: formerPeers{until: map[formerPeer]time.Time{}},
	}
}

// Move notes that a session, which sent to the tunnels of from, sends to those of
// to. nil stands for a session that does not exist.
func (p *Paths) Move(seid uint64, from, to *session.Session) {
	before, after := tunnelsOf(from), tunnelsOf(to)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range after {
		if !slices.Contains(before, t) {
			p.add(seid, t)
		}
	}
	for _, t := range before {
		if !slices.Contains(after, t) {
			p.remove(seid, t)
			if sendsOn(to) && !t.control {
				p.former.add(formerPeer{seid, t.Addr}, p.o.Now())
			}
		}
	}
}

func (p *Paths) add(seid uint64, to tunnel) {
	q := p.peers[to.Addr]
	if q == nil {
		q = &peer{addr: to.Addr, next: p.o.Now()}
		free := slices.Index(p.byNumber, nil)
		if free < 0 {
			free = len(p.byNumber)
			p.byNumber = append(p.byNumber, nil)
		}
		q.number = uint32(free)
		p.byNumber[free], p.peers[to.Addr] = q, q
	}
	q.tunnels++
	if !to.control {
		q.users++
	}
	key := tunnelKey{q.number, to.TEID}
	if _, taken := p.tunnels[key]; !taken {
		p.tunnels[key] = seid
		return
	}
	if p.more[key] == nil {
		p.more[key] = map[uint64]bool{}
	}
	p.more[key][seid] = true
}

func (p *Paths) remove(seid uint64, to tunnel) {
	q := p.peers[to.Addr]
	if q == nil {
		return
	}
	key := tunnelKey{q.number, to.TEID}
	more := p.more[key]
	switch first, exists := p.tunnels[key]; {
	case !exists || first != seid && !more[seid]:
		return
	case first != seid:
		delete(more, seid)
	case len(more) > 0:
		for next := range more { // any of them moves up
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
	if !to.control {
		q.users--
	}
	if q.users == 0 {
		q.down, q.asked = false, 0
	}
	if q.tunnels == 0 {
		delete(p.peers, to.Addr)
		p.byNumber[q.number] = nil
	}
}

// Sessions lists the sessions that send to an F-TEID.
func (p *Paths) Sessions(to session.PeerTEID) []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.peers[to.Addr]
	if q == nil {
		return nil
	}
	key := tunnelKey{q.number, to.TEID}
	first, exists := p.tunnels[key]
	if !exists {
		return nil
	}
	return slices.AppendSeq([]uint64{first}, maps.Keys(p.more[key]))
}

// Users lists the sessions that send to a peer, in no order, each once.
func (p *Paths) Users(addr netip.Addr) []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.peers[addr]
	if q == nil {
		return nil
	}
	users := map[uint64]bool{}
	for key, seid := range p.tunnels {
		if key.peer == q.number {
			users[seid] = true
			maps.Copy(users, p.more[key])
		}
	}
	return slices.Collect(maps.Keys(users))
}

// Failed says whether the path to a peer has failed, and whether the peer has ever
// answered: one that has not may answer no Echo Requests at all.
func (p *Paths) Failed(addr netip.Addr) (failed, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.peers[addr]
	return q != nil && q.down, q != nil && q.answered
}

// answerEcho answers a peer that the data path cannot answer, from where it asked.
func (p *Paths) answerEcho(r Received, sequence uint16) {
	if !p.o.Echo(r) {
		p.o.Stats.GTPUIgnored.Add(1)
		return
	}
	if _, err := r.socket.WriteToUDPAddrPort(gtpu.AppendEchoResponse(nil, sequence), netip.AddrPortFrom(r.From, r.port)); err != nil {
		p.o.Log.Debug("Echo Request not answered", "from", r.From, "error", err)
	}
}

// echoResponse takes a peer's answer. Only the one to the last request counts.
func (p *Paths) echoResponse(from netip.Addr, sequence uint16) {
	p.mu.Lock()
	q := p.peers[from]
	if q == nil || q.asked == 0 || sequence != q.sequence {
		p.mu.Unlock()
		p.o.Stats.GTPUIgnored.Add(1)
		return
	}
	was := q.down
	q.down, q.answered, q.asked, q.next = false, true, 0, p.o.Now().Add(p.o.Interval())
	p.mu.Unlock()
	if was {
		p.o.Recovered(from)
	}
}

// Watch sends the Echo Requests that are due, and finds the paths that failed. Run
// calls it twice a second.
func (p *Paths) Watch() {
	now := p.o.Now()
	var ask []peer
	var failed []netip.Addr
	p.mu.Lock()
	for _, q := range p.peers {
		if q.users == 0 || now.Before(q.next) {
			continue
		}
		if q.asked >= n3Requests && !q.down {
			q.down = true
			failed = append(failed, q.addr)
		}
		if q.asked >= n3Requests {
			q.asked, q.next = 0, now.Add(p.o.Interval())
			continue
		}
		if q.asked == 0 {
			q.sequence++
		}
		q.asked++
		q.next = now.Add(t3Response)
		ask = append(ask, *q)
	}
	p.mu.Unlock()
	for _, q := range ask {
		if err := p.send(q.addr, gtpu.AppendEchoRequest(nil, q.sequence)); err != nil {
			p.o.Log.Debug("cannot send an Echo Request", "peer", q.addr, "error", err)
			continue
		}
		p.o.Stats.EchoRequests.Add(1)
	}
	for _, a := range failed {
		p.o.Failed(a)
	}
}

// Peer is a GTP-U peer. Tunnels counts those that sessions send to; Down says
// that the path has failed. The path to a control plane (Control) is not watched.
type Peer struct {
	Addr    netip.Addr `json:"addr"`
	Tunnels int        `json:"tunnels"`
	Control bool       `json:"control,omitempty"` // only what is for the control plane goes there
	Down    bool       `json:"down"`              // it does not answer Echo Requests
}

// Peers lists the peers, in no order.
func (p *Paths) Peers() []Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Peer, 0, len(p.peers))
	for _, q := range p.peers {
		out = append(out, Peer{q.addr, q.tunnels, q.users == 0, q.down})
	}
	return out
}

// tunnelsOf lists the F-TEIDs that a session's FARs send to, each once.
func tunnelsOf(s *session.Session) []tunnel {
	if s == nil {
		return nil
	}
	var out []tunnel
	for i := range s.FARs {
		to, ok := TunnelOf(&s.FARs[i])
		if !ok {
			continue
		}
		control := s.FARs[i].Forwarding.Destination == session.CPFunction
		at := slices.IndexFunc(out, func(t tunnel) bool { return t.PeerTEID == to })
		if at < 0 {
			out = append(out, tunnel{to, control})
		} else {
			out[at].control = out[at].control && control
		}
	}
	return out
}

// TunnelOf returns the F-TEID that a FAR sends to. f may be nil.
func TunnelOf(f *session.FAR) (session.PeerTEID, bool) {
	if f == nil || f.Forwarding == nil || f.Forwarding.Outer == nil || f.Forwarding.Outer.Kind != session.OuterGTPU {
		return session.PeerTEID{}, false
	}
	return session.PeerTEID{Addr: f.Forwarding.Outer.Addr, TEID: f.Forwarding.Outer.TEID}, true
}

// EndMarkers sends an End Marker to the old tunnel of each of the FARs that sends
// elsewhere now (TS 29.281 section 7.3.2).
func (p *Paths) EndMarkers(from, to *session.Session, fars []uint32) {
	for _, id := range fars {
		old, was := TunnelOf(from.FAR(id))
		if now, is := TunnelOf(to.FAR(id)); !was || is && now == old {
			continue
		}
		p.EndMarker(old)
	}
}

// EndMarker sends an End Marker to a tunnel.
func (p *Paths) EndMarker(to session.PeerTEID) {
	if err := p.send(to.Addr, gtpu.AppendEndMarker(nil, to.TEID)); err != nil {
		p.o.Stats.SendFailed.Add(1)
		p.o.Log.Debug("cannot send an End Marker", "peer", to.Addr, "error", err)
		return
	}
	p.o.Stats.EndMarkers.Add(1)
}

// Duplicate sends a copy of a T-PDU to each of the destinations, as Duplicating
// Parameters name them.
func (p *Paths) Duplicate(destinations []session.Forwarding, tpdu []byte) {
	for i := range destinations {
		if p.sent(destinations[i].Outer, tpdu) {
			p.o.Stats.Duplicates.Add(1)
		}
	}
}

// SendTPDU sends a T-PDU without a PDU Session Container.
func (p *Paths) SendTPDU(to *session.OuterHeader, tpdu []byte) {
	if p.sent(to, tpdu) {
		p.o.Stats.SentByKernel.Add(1)
	}
}

// sent sends a T-PDU and says whether it is on its way.
func (p *Paths) sent(to *session.OuterHeader, tpdu []byte) bool {
	err := p.sendTPDU(to, tpdu)
	if err != nil {
		p.o.Stats.SendFailed.Add(1)
		p.o.Log.Debug("cannot send a T-PDU", "error", err)
	}
	return err == nil
}

func (p *Paths) sendTPDU(o *session.OuterHeader, tpdu []byte) error {
	if o == nil {
		return errors.New("the FAR has no outer header")
	}
	if o.Kind == session.OuterUDP {
		return p.sendTo(netip.AddrPortFrom(o.Addr, o.Port), tpdu)
	}
	message, err := gtpu.AppendGPDU(nil, o.TEID, gtpu.PDUSessionContainer{}, tpdu)
	if err != nil {
		return err
	}
	return p.send(o.Addr, message)
}

// send sends a GTP-U message from one of our addresses.
func (p *Paths) send(to netip.Addr, message []byte) error {
	return p.sendTo(netip.AddrPortFrom(to, gtpu.Port), message)
}

func (p *Paths) sendTo(to netip.AddrPort, payload []byte) error {
	p.mu.Lock()
	var socket *net.UDPConn
	for _, a := range p.own { // the first one, from which the data path sends as well
		if s := p.sockets[a]; socket == nil && s != nil && a.Is4() == to.Addr().Is4() {
			socket = s
		}
	}
	p.mu.Unlock()
	if socket == nil {
		return fmt.Errorf("send to %s: no GTP-U socket of that family is open", to)
	}
	_, err := socket.WriteToUDPAddrPort(payload, to)
	return err
}

// handle takes a GTP-U message that a peer sent.
func (p *Paths) handle(r Received) {
	h, ok := gtpu.ParseHeader(r.Message)
	if !ok {
		p.o.Stats.GTPUMalformed.Add(1)
		return
	}
	r.TEID = h.TEID()
	switch h.Type() {
	case gtpu.EchoRequest:
		sequence, _ := h.Sequence()
		p.answerEcho(r, sequence)
	case gtpu.EchoResponse:
		sequence, _ := h.Sequence()
		p.echoResponse(r.From, sequence)
	case gtpu.ErrorIndicationType:
		p.errorIndication(r.From, h)
	case gtpu.EndMarker:
		if !p.o.EndMarker(r) {
			p.o.Stats.EndMarkersRefused.Add(1)
		}
	case gtpu.GPDU:
		if !p.o.GPDU(r) {
			p.o.Stats.GTPUIgnored.Add(1)
			return
		}
		p.o.Stats.FromSMF.Add(1)
	default:
		p.o.Stats.GTPUIgnored.Add(1)
	}
}

// errorIndication takes an Error Indication from the peer that it names: only a peer itself
// knows which TEIDs it does not know.
func (p *Paths) errorIndication(from netip.Addr, h gtpu.Header) {
	e, ok := gtpu.ParseErrorIndication(h)
	if !ok {
		p.o.Stats.GTPUMalformed.Add(1)
		return
	}
	p.o.Stats.ErrorIndications.Add(1)
	if from != e.Peer.Unmap() {
		p.o.Stats.ErrorIndicationsRefused.Add(1)
		return
	}
	p.o.Indication(session.PeerTEID{Addr: e.Peer.Unmap(), TEID: e.TEID})
}
