package slowpath

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// datagramKey identifies the datagram of a fragment (RFC 791, RFC 8200 section 4.5). For
// IPv6 the next header does not belong to it. The interface does not either: fragments
// may take different links of a bundle.
type datagramKey struct {
	src, dst netip.Addr
	id       uint32
	protocol uint8
}

// piece is one fragment's share of the fragmentable part.
type piece struct {
	start int
	data  []byte
}

func (p piece) end() int { return p.start + len(p.data) }

// unfinished is a datagram of which fragments are missing.
type unfinished struct {
	key      datagramKey
	deadline time.Time
	element  *list.Element // of all, and of its source's
	ofSource *list.Element
	number   uint64 // datagrams before it
	source   *origin
	ifindex  int    // of the first fragment
	before   []byte // frame up to the fragmentable part: Ethernet, tags, headers
	l3       int    // where the IP header starts in before
	first    []byte // packet of the first fragment, for an ICMP error
	pieces   []piece
	total    int   // length of the fragmentable part, -1 until the last fragment came
	length   int   // of the pieces, which do not overlap
	size     int   // bytes held
	ecn      uint8 // a bit for each ECN field seen
	// dead datagrams stay, without content, so that later fragments do not begin a new
	// datagram (RFC 5722).
	dead bool
}

// maxFrame is the longest frame that Inject accepts.
const maxFrame = 3400

// overhead is the memory of an unfinished datagram, in addition to its bytes.
const overhead = 512

// pieceOverhead is the same for a fragment.
const pieceOverhead = 64

type reassembler struct {
	options  Options
	counters *Counters

	mu    sync.Mutex
	table map[datagramKey]*unfinished
	order *list.List // oldest first
	ports map[int]*ingress
	bytes int
	begun uint64
}

// reassemble adds a fragment, and sends the datagram through the data path when it is
// complete.
func (s *SlowPath) reassemble(p Packet) {
	s.Counters.Fragments.Add(1)
	f, problem, ok := parseFragment(p)
	if !ok {
		s.Counters.ReassemblyMalformed.Add(1)
		if problem != nil {
			s.ownError(*problem)
		}
		return
	}
	frame := s.reassembler.add(f)
	if frame == nil {
		return
	}
	if f.offset == 0 && !f.more {
		s.Counters.AtomicFragments.Add(1)
	}
	ifindex := f.ifindex
	if f.whole != nil {
		ifindex = f.whole.ifindex
	}
	if s.inject(frame, ifindex) {
		s.Counters.Reassembled.Add(1)
	}
}

// fragment is what parseFragment found. Its slices are the packet's.
type fragment struct {
	key     datagramKey
	ifindex int
	before  []byte
	l3      int
	packet  []byte
	offset  int
	more    bool
	data    []byte
	tos     uint8
	whole   *unfinished // set by add: the datagram that it completed
}

// add keeps a fragment. It returns the frame if the datagram is complete.
func (r *reassembler) add(f *fragment) []byte {
	if f.offset == 0 && !f.more {
		// RFC 6946: an atomic fragment is independent of others with its ID.
		u := &unfinished{ifindex: f.ifindex, before: f.before, l3: f.l3, total: len(f.data), pieces: []piece{{0, f.data}}}
		u.ecn |= 1 << (f.tos & 3)
		return r.finish(u)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.table[f.key]
	if u == nil {
		u = r.begin(f)
	}
	if u.dead {
		r.counters.FragmentsDiscarded.Add(1)
		return nil
	}
	if !r.insert(u, f) || u.length != u.total {
		r.limit()
		return nil
	}
	r.remove(u)
	f.whole = u
	return r.finish(u)
}

// begin makes room for the datagram of a fragment, which is the first one of it that came.
func (r *reassembler) begin(f *fragment) *unfinished {
	u := &unfinished{key: f.key, deadline: r.options.Now().Add(r.options.Timeout), total: -1, number: r.begun, source: r.origin(f.ifindex, f.key.src)}
	r.begun++
	u.element, u.ofSource = r.order.PushBack(u), u.source.oldest.PushBack(u)
	r.table[f.key] = u
	u.source.charge(1, 0)
	r.grow(u, overhead)
	return u
}

// insert adds a fragment to the datagram. It returns false if that brings nothing new,
// or ends the datagram.
func (r *reassembler) insert(u *unfinished, f *fragment) bool {
	at, found := slices.BinarySearchFunc(u.pieces, f.offset, func(p piece, start int) int { return p.start - start })
	if found && bytes.Equal(u.pieces[at].data, f.data) && (f.more || u.total == f.offset+len(f.data)) {
		r.counters.FragmentsDiscarded.Add(1) // the same one again
		return false
	}
	end := f.offset + len(f.data)
	overlaps := at > 0 && u.pieces[at-1].end() > f.offset || at < len(u.pieces) && u.pieces[at].start < end
	// A last fragment that ends elsewhere than another one, or before data that we
	// have, contradicts what came before: treat it as an overlap.
	if !f.more && (u.total >= 0 || len(u.pieces) > 0 && u.pieces[len(u.pieces)-1].end() > end) {
		overlaps = true
	}
	if u.total >= 0 && end > u.total {
		overlaps = true
	}
	switch {
	case overlaps:
		r.counters.ReassemblyOverlap.Add(1)
		r.kill(u)
		return false
	case ethernetLength+ipv4Length+end > maxFrame:
		r.counters.ReassemblyTooLong.Add(1)
		r.kill(u)
		return false
	}
	p := piece{f.offset, bytes.Clone(f.data)}
	u.pieces = slices.Insert(u.pieces, at, p)
	u.length += len(p.data)
	r.grow(u, pieceOverhead+len(p.data))
	u.ecn |= 1 << (f.tos & 3)
	if !f.more {
		u.total = end
	}
	if f.offset == 0 {
		u.ifindex, u.l3 = f.ifindex, f.l3
		u.before, u.first = bytes.Clone(f.before), bytes.Clone(f.packet)
		r.grow(u, len(u.before)+len(u.first))
	}
	return true
}

// finish makes the frame. It returns nil if the frame cannot be sent.
func (r *reassembler) finish(u *unfinished) []byte {
	// CE in one fragment is CE of the datagram, unless another one is Not-ECT (RFC 3168
	// section 5.3).
	ce := u.ecn&(1<<3) != 0
	if ce && u.ecn&1 != 0 {
		r.counters.ReassemblyECN.Add(1)
		return nil
	}
	if len(u.before)+u.total > maxFrame {
		r.counters.ReassemblyTooLong.Add(1)
		return nil
	}
	frame := make([]byte, 0, len(u.before)+u.total)
	frame = append(frame, u.before...)
	for _, p := range u.pieces {
		frame = append(frame, p.data...)
	}
	packet := frame[u.l3:]
	if packet[0]>>4 == 4 {
		ip := ipv4(packet)
		if ce {
			ip[1] |= 3
		}
		binary.BigEndian.PutUint16(ip[6:], ip.flags()&0x4000)
		ip.finish(len(packet))
		return frame
	}
	if ce {
		packet[1] |= 3 << 4
	}
	binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-ipv6Length))
	return frame
}

// kill frees a datagram's content, but remembers the datagram.
func (r *reassembler) kill(u *unfinished) {
	r.grow(u, overhead-u.size)
	u.pieces, u.before, u.first, u.dead = nil, nil, nil, true
}

func (r *reassembler) remove(u *unfinished) {
	r.grow(u, -u.size)
	r.order.Remove(u.element)
	u.source.oldest.Remove(u.ofSource)
	u.source.charge(-1, 0)
	delete(r.table, u.key)
}

func (r *reassembler) grow(u *unfinished, n int) {
	u.size += n
	r.bytes += n
	u.source.charge(0, n)
}

// limit removes datagrams while there are too many.
func (r *reassembler) limit() {
	for len(r.table) > r.options.MaxDatagrams || r.bytes > r.options.MaxBytes {
		u := r.next()
		if !u.dead {
			r.counters.ReassemblyEvicted.Add(1)
		}
		r.remove(u)
	}
}

// expire removes datagrams that are too old. It returns the errors to send, about those
// whose first fragment came (RFC 792, RFC 4443 section 3.3).
func (r *reassembler) expire(now time.Time) []icmpRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errors []icmpRequest
	for e := r.order.Front(); e != nil; e = r.order.Front() {
		u := e.Value.(*unfinished)
		if now.Before(u.deadline) {
			break
		}
		r.remove(u)
		if u.dead {
			continue
		}
		r.counters.ReassemblyTimeout.Add(1)
		if u.first != nil {
			errors = append(errors, icmpRequest{packet: u.first, kind: timeExceeded, code: reassemblyTimeExceeded, ifindex: u.ifindex, header: u.before[:u.l3]})
		}
	}
	return errors
}

// parseFragment parses an IPv4 or IPv6 fragment. If it is malformed, problem is the
// error for its sender, if any.
func parseFragment(p Packet) (f *fragment, problem *icmpRequest, ok bool) {
	b := p.Data[p.L3:]
	if ip, whole, is4 := parseIPv4(b); is4 && whole { // RFC 791 section 3.2
		data := ip.payload()
		if ip.offset()+len(data) > 0xffff-ip.headerLength() || len(data) == 0 || ip.more() && len(data)%8 != 0 {
			return nil, nil, false
		}
		return &fragment{
			key:     datagramKey{ip.src(), ip.dst(), uint32(binary.BigEndian.Uint16(ip[4:])), ip.protocol()},
			ifindex: p.Ifindex,
			before:  p.Data[:p.L3+ip.headerLength()],
			l3:      p.L3,
			packet:  ip,
			offset:  ip.offset(),
			more:    ip.more(),
			data:    data,
			tos:     ip[1],
		}, nil, true
	}
	ip, whole, is6 := parseIPv6(b)
	if !is6 || !whole {
		return nil, nil, false
	}
	return fragment6(p, ip)
}

// fragment6 parses an IPv6 fragment (RFC 8200 section 4.5).
func fragment6(p Packet, ip ipv6) (*fragment, *icmpRequest, bool) {
	h, ok := ip.walk(func(h header) bool { return h.kind == headerFragment })
	if !ok || h.kind != headerFragment || len(ip) < h.at+fragmentLength {
		return nil, nil, false
	}
	word := binary.BigEndian.Uint16(ip[h.at+2:])
	f := &fragment{
		key: datagramKey{src: ip.src(), dst: ip.dst(), id: binary.BigEndian.Uint32(ip[h.at+4:])},
		// Remove the Fragment header.
		ifindex: p.Ifindex, l3: p.L3, packet: ip,
		offset: int(word &^ 7), more: word&1 != 0,
		data: ip[h.at+fragmentLength:],
		tos:  ip[0]<<4 | ip[1]>>4,
	}
	wrong := func(code uint8, pointer int) (*fragment, *icmpRequest, bool) {
		return nil, &icmpRequest{packet: ip, kind: parameterProblem, code: code, info: uint32(pointer), ifindex: p.Ifindex, header: p.Data[:p.L3]}, false
	}
	switch {
	case len(f.data) == 0:
		return nil, nil, false
	case f.more && len(f.data)%8 != 0:
		return wrong(0, 4) // at Payload Length
	case f.offset+len(f.data) > 0xffff:
		return wrong(0, h.at+2) // at Fragment Offset
	case f.offset == 0 && !chainWhole(ip):
		return wrong(firstHeaderChain, h.at)
	}
	if f.offset == 0 {
		f.before = bytes.Clone(p.Data[:p.L3+h.at])
		f.before[p.L3+h.pointer] = ip[h.at]
	}
	return f, nil, true
}

// chainWhole says whether a first fragment has all headers up to that of the upper layer
// (RFC 8200 section 4.5).
func chainWhole(ip ipv6) bool {
	h, ok := ip.walk(upperLayer)
	if !ok {
		return false
	}
	need := map[uint8]int{
		protocolTCP: 20, protocolUDP: udpLength, protocolICMPv6: 8,
		protocolIPv4: ipv4Length, protocolIPv6: ipv6Length, headerESP: 8, headerNone: 0,
	}[h.kind]
	return len(ip) >= h.at+need
}
