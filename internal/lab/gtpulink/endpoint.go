package gtpulink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-net/culvert/internal/probe"
)

// Endpoint is a set of links with their devices and sockets.
type Endpoint struct {
	// Refuse answers a G-PDU for a TEID that no link has by an Error Indication, as
	// TS 29.281 section 7.3.1 demands. Set it before Run.
	Refuse bool

	links   []*link
	sockets map[netip.Addr]*socket
	failed  chan error // of what runs besides links and sockets; one is enough

	mu    sync.Mutex
	stats Stats
	// echoes are the sequence numbers that were answered, by the address
	// that answered.
	echoes map[netip.Addr]map[uint16]bool
	next   uint16 // Echo sequence number
}

// link is a Link that runs.
type link struct {
	Link
	device *os.File
	socket *socket
	remote atomic.Pointer[remote]
	lines  atomic.Pointer[lines] // nil: no delay

	overflow atomic.Uint64 // packets for which a line had no room

	sending sync.Mutex
	frame   []byte // that is sent

	mu          sync.Mutex
	stats       LinkStats
	undelivered uint64 // T-PDUs that the device refused
	ended       bool   // by an End Marker
}

// remote is the F-TEID that a link sends to.
type remote struct {
	addr netip.AddrPort
	teid uint32
}

func (l *link) connect(to netip.Addr, teid uint32) {
	l.remote.Store(&remote{netip.AddrPortFrom(to, Port), teid})
}

// LinkStats counts T-PDUs of a link.
type LinkStats struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	// SentOctets and ReceivedOctets are those of T-PDUs.
	SentOctets     uint64 `json:"sent_octets"`
	ReceivedOctets uint64 `json:"received_octets"`

	EndMarkers uint64 `json:"end_markers"` // received
	Late       uint64 `json:"late"`        // T-PDUs received behind an End Marker
	Containers uint64 `json:"containers"`  // received PDU Session Containers
	QFI        uint8  `json:"qfi"`         // of the last one
	RQI        bool   `json:"rqi"`
	// Refused counts Error Indications for the F-TEID that the link sends to.
	Refused uint64 `json:"refused"`
	// Overflow counts T-PDUs of both directions that found the delay line full.
	Overflow uint64 `json:"overflow"`
}

// Stats are an endpoint's counters.
type Stats struct {
	Links            map[string]LinkStats `json:"links"`
	EchoRequests     uint64               `json:"echo_requests"` // received and answered
	ErrorIndications uint64               `json:"error_indications"`
	UnknownTEID      uint64               `json:"unknown_teid"`
	Malformed        uint64               `json:"malformed"`
	Errors           []probe.ICMPError    `json:"errors"`
}

// Open makes the devices and opens the sockets, in the current network
// namespace.
func Open(links []Link) (*Endpoint, error) {
	e := &Endpoint{sockets: map[netip.Addr]*socket{}, echoes: map[netip.Addr]map[uint16]bool{}, failed: make(chan error, 1)}
	for _, l := range links {
		if err := e.add(l); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

func (e *Endpoint) add(l Link) error {
	if err := l.Validate(); err != nil {
		return err
	}
	for _, other := range e.links {
		if other.Local == l.Local && other.TEID == l.TEID {
			return fmt.Errorf("teid: %s and %s both receive %#x on %v", other.Device, l.Device, l.TEID, l.Local)
		}
	}
	s := e.sockets[l.Local]
	if s == nil {
		var err error
		if s, err = openSocket(l.Local, l.HopLimit); err != nil {
			return fmt.Errorf("local: %s: %w", l.Device, err)
		}
		e.sockets[l.Local] = s
	}
	device, err := openDevice(l.Device, l.TAP)
	if err != nil {
		return fmt.Errorf("device: %s: %w", l.Device, err)
	}
	running := &link{Link: l, device: device, socket: s}
	running.connect(l.Remote, l.RemoteTEID)
	e.links = append(e.links, running)
	return nil
}

// Close closes sockets and devices; the devices are gone with it.
func (e *Endpoint) Close() error {
	var errs []error
	for _, s := range e.sockets {
		errs = append(errs, s.conn.Close())
	}
	for _, l := range e.links {
		errs = append(errs, l.device.Close())
		l.lines.Swap(nil).close()
	}
	return errors.Join(errs...)
}

// fail ends Run with an error.
func (e *Endpoint) fail(err error) {
	select {
	case e.failed <- err:
	default: // it ends already
	}
}

// Run carries packets until ctx ends, then closes the endpoint.
func (e *Endpoint) Run(ctx context.Context) error {
	failed := make(chan error, len(e.links)+len(e.sockets))
	var wg sync.WaitGroup
	for _, l := range e.links {
		wg.Go(func() { failed <- l.carry() })
	}
	for _, s := range e.sockets {
		wg.Go(func() { failed <- e.receive(s) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-e.failed:
	}
	err = errors.Join(err, e.Close())
	wg.Wait()
	return err
}

// carry sends what the device hands out.
func (l *link) carry() error {
	packet := make([]byte, 1<<16)
	for {
		n, err := l.device.Read(packet)
		if err != nil {
			return fmt.Errorf("read %s: %w", l.Device, err)
		}
		l.pass(packet[:n], up, l.send)
	}
}

// send sends a T-PDU to the other end of the tunnel.
func (l *link) send(packet []byte) {
	l.sending.Lock()
	defer l.sending.Unlock()
	to := l.remote.Load()
	m := message{kind: gPDU, container: l.Container, qfi: l.QFI, rqi: l.RQI, teid: to.teid, payload: packet}
	l.frame = m.appendTo(l.frame[:0])
	// A packet that cannot be sent is a packet lost, and counted by who
	// compares both ends; ICMP errors are in the socket's queue.
	if l.socket.send(l.frame, to.addr) == nil {
		l.mu.Lock()
		l.stats.Sent++
		l.stats.SentOctets += uint64(len(packet))
		l.mu.Unlock()
	}
}

// write hands a T-PDU to the device, which refuses what is no IP packet, and what comes
// while it is down: that is not delivered.
func (l *link) write(packet []byte) {
	_, err := l.device.Write(packet)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.undelivered++
		return
	}
	l.stats.Received++
	l.stats.ReceivedOctets += uint64(len(packet))
}

// receive takes what arrives at a socket.
func (e *Endpoint) receive(s *socket) error {
	b := make([]byte, 1<<16)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(b)
		e.keep(s.errors())
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			continue // an ICMP error, kept above
		}
		m, err := parse(b[:n])
		if err != nil {
			e.count(&e.stats.Malformed)
			continue
		}
		e.handle(s, from, m)
	}
}

func (e *Endpoint) handle(s *socket, from netip.AddrPort, m message) {
	switch m.kind {
	case echoRequest:
		e.count(&e.stats.EchoRequests)
		answer := message{kind: echoResponse, sequence: m.sequence, sequenced: true, payload: []byte{14, 0}}
		_ = s.send(answer.appendTo(nil), from) // lost like any other datagram
	case echoResponse:
		e.mu.Lock()
		addr := from.Addr().Unmap()
		if e.echoes[addr] == nil {
			e.echoes[addr] = map[uint16]bool{}
		}
		e.echoes[addr][m.sequence] = true
		e.mu.Unlock()
	case errorIndication:
		e.count(&e.stats.ErrorIndications)
		e.refused(m)
	case gPDU, endMarker:
		e.deliver(s, from, m)
	}
}

// refused counts an Error Indication at the link that sends to the F-TEID.
func (e *Endpoint) refused(m message) {
	teid, peer, ok := refusedFTEID(m.payload)
	for _, l := range e.links {
		if to := l.remote.Load(); ok && to.teid == teid && to.addr.Addr() == peer {
			l.mu.Lock()
			l.stats.Refused++
			l.mu.Unlock()
		}
	}
}

// deliver hands a G-PDU or End Marker to the link that has its TEID.
func (e *Endpoint) deliver(s *socket, from netip.AddrPort, m message) {
	i := slices.IndexFunc(e.links, func(l *link) bool { return l.socket == s && l.TEID == m.teid })
	if i < 0 {
		e.count(&e.stats.UnknownTEID)
		if e.Refuse && m.kind == gPDU {
			refusal := message{kind: errorIndication, sequenced: true, payload: appendFTEID(nil, m.teid, s.local)}
			_ = s.send(refusal.appendTo(nil), netip.AddrPortFrom(from.Addr(), Port)) // lost like any other datagram
		}
		return
	}
	l := e.links[i]
	if l.take(m) {
		l.pass(m.payload, down, l.write)
	}
}

// take counts a G-PDU or End Marker, and says whether it holds a T-PDU.
func (l *link) take(m message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.kind == endMarker {
		l.stats.EndMarkers++
		l.ended = true
		return false
	}
	if l.ended {
		l.stats.Late++
	}
	if m.container != NoContainer {
		l.stats.Containers++
		l.stats.QFI, l.stats.RQI = m.qfi, m.rqi
	}
	return true
}

func (e *Endpoint) count(c *uint64) {
	e.mu.Lock()
	*c++
	e.mu.Unlock()
}

// keep remembers ICMP errors, without end only in theory: labs are short.
func (e *Endpoint) keep(list []probe.ICMPError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	const enough = 10000
	if len(e.stats.Errors) < enough {
		e.stats.Errors = append(e.stats.Errors, list...)
	}
}

// Stats returns the counters.
func (e *Endpoint) Stats(_ Request, r *Response) error {
	for _, s := range e.sockets {
		e.keep(s.errors())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.Stats = e.stats
	r.Stats.Errors = slices.Clone(e.stats.Errors)
	r.Stats.Links = map[string]LinkStats{}
	for _, l := range e.links {
		l.mu.Lock()
		seen := l.stats
		seen.Overflow = l.overflow.Load()
		r.Stats.Links[l.Device] = seen
		r.Stats.Malformed += l.undelivered
		l.mu.Unlock()
	}
	return nil
}

// EndMarker sends Count End Markers on the link of Device.
func (e *Endpoint) EndMarker(q Request, _ *Response) error {
	l, err := e.link(q.Device)
	if err != nil {
		return err
	}
	to := l.remote.Load()
	m := message{kind: endMarker, teid: to.teid}
	for range q.Count {
		if err := l.socket.send(m.appendTo(nil), to.addr); err != nil {
			return err
		}
	}
	return nil
}

// Tunnel sets the tunnel of Device up anew: what the link sends goes to another
// F-TEID from here on, and what arrives is not behind an End Marker.
func (e *Endpoint) Tunnel(q Request, _ *Response) error {
	l, err := e.link(q.Device)
	if err != nil {
		return err
	}
	if q.To.Is4() != l.Local.Is4() || !q.To.IsValid() {
		return fmt.Errorf("to: %s: %v is not of the family of %v", q.Device, q.To, l.Local)
	}
	l.connect(q.To, q.TEID)
	l.mu.Lock()
	l.ended = false
	l.mu.Unlock()
	return nil
}

// Echo sends Count Echo Requests from the socket of Device to the address To (the
// link's remote unless it is set), and waits for the answers.
func (e *Endpoint) Echo(q Request, r *Response) error {
	l, err := e.link(q.Device)
	if err != nil {
		return err
	}
	to := q.To
	if !to.IsValid() {
		to = l.remote.Load().addr.Addr()
	}
	var sequences []uint16
	for range q.Count {
		e.mu.Lock()
		e.next++
		m := message{kind: echoRequest, sequence: e.next, sequenced: true}
		e.mu.Unlock()
		sequences = append(sequences, m.sequence)
		if err := l.socket.send(m.appendTo(nil), netip.AddrPortFrom(to, Port)); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	for end := time.Now().Add(q.Wait); ; time.Sleep(5 * time.Millisecond) {
		e.mu.Lock()
		r.Received = 0
		for _, s := range sequences {
			if e.echoes[to][s] {
				r.Received++
			}
		}
		e.mu.Unlock()
		if r.Received == q.Count || time.Now().After(end) {
			return nil
		}
	}
}

func (e *Endpoint) link(device string) (*link, error) {
	for _, l := range e.links {
		if l.Device == device {
			return l, nil
		}
	}
	return nil, fmt.Errorf("device: this endpoint has no %q", device)
}
