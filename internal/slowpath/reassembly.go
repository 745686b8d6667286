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
	element  *list.Element
	ifindex  int    // of the first fragment
	before   []byte // frame up to the fragmentable part: Ethernet, tags, headers
	l3       int    // where the IP header starts in before
	first    []byte // packet of the first fragment, for an ICMP error
	pieces   []piece
	total    int // length of the fragmentable part, -1 until the last fragment came
	size     int // bytes held
	ecn      ecnMarks
	// dead datagrams stay, without content, so that later fragments do not begin a new
	// datagram (RFC 5722).
	dead bool
}

// ecnMarks has a bit for each ECN field seen.
type ecnMarks uint8

func (m *ecnMarks) add(tos uint8) { *m |= 1 << (tos & 3) }

// merged returns the ECN field of the whole datagram (RFC 3168 section 5.3): CE if a
// fragment has it. It returns false if a fragment is also Not-ECT.
func (m ecnMarks) merged() (ce, ok bool) {
	ce = m&(1<<3) != 0
	return ce, !ce || m&1 == 0
}

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
	bytes int
}

func newReassembler(o Options, c *Counters) *reassembler {
	return &reassembler{options: o, counters: c, table: map[datagramKey]*unfinished{}, order: list.New()}
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
		u.ecn.add(f.tos)
		return r.finish(u)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.table[f.key]
	if u == nil {
		u = r.begin(f.key)
	}
	if u.dead {
		r.counters.FragmentsDiscarded.Add(1)
		return nil
	}
	if !r.insert(u, f) || !u.complete() {
		r.limit(u)
		return nil
	}
	r.remove(u)
	f.whole = u
	return r.finish(u)
}

func (r *reassembler) begin(key datagramKey) *unfinished {
	u := &unfinished{key: key, deadline: r.options.Now().Add(r.options.Timeout), total: -1}
	u.element = r.order.PushBack(u)
	r.table[key] = u
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
	case ethernetLength+ipv4Length+end > r.options.MaxFrame:
		r.counters.ReassemblyTooLong.Add(1)
		r.kill(u)
		return false
	}
	p := piece{f.offset, bytes.Clone(f.data)}
	u.pieces = slices.Insert(u.pieces, at, p)
	r.grow(u, pieceOverhead+len(p.data))
	u.ecn.add(f.tos)
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

// complete says whether no byte is missing.
func (u *unfinished) complete() bool {
	if u.total < 0 {
		return false
	}
	at := 0
	for _, p := range u.pieces {
		if p.start != at {
			return false
		}
		at = p.end()
	}
	return at == u.total
}

// finish makes the frame. It returns nil if the frame cannot be sent.
func (r *reassembler) finish(u *unfinished) []byte {
	ce, ok := u.ecn.merged()
	if !ok {
		r.counters.ReassemblyECN.Add(1)
		return nil
	}
	if len(u.before)+u.total > r.options.MaxFrame {
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
		ipv6(packet).setECN(3)
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
	delete(r.table, u.key)
}

func (r *reassembler) grow(u *unfinished, n int) {
	u.size += n
	r.bytes += n
}

// limit removes the oldest datagrams while there are too many, but the one that just
// grew last.
func (r *reassembler) limit(newest *unfinished) {
	for len(r.table) > r.options.MaxDatagrams || r.bytes > r.options.MaxBytes {
		oldest := r.order.Front().Value.(*unfinished)
		if oldest == newest && len(r.table) > 1 {
			oldest = r.order.Front().Next().Value.(*unfinished)
		}
		if !oldest.dead {
			r.counters.ReassemblyEvicted.Add(1)
		}
		r.remove(oldest)
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
