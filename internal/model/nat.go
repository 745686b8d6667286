package model

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/nat"
)

// NAT is that of a pool's UEs (section 7, "NAT44").
type NAT struct {
	Pool netip.Prefix `json:"pool"`
	nat.NAT
}

// natState is a NAT with its mappings.
type natState struct {
	NAT
	mappings map[external]*mapping
}

// external is a public port, of ICMP's queries an identifier.
type external struct {
	protocol uint8
	address  netip.Addr
	port     uint16
}

// mapping is what a public port is in use for.
type mapping struct {
	private uint16
	tcp     tcpState
	sent    int64 // when the UE sent by it, in units of time
}

// tcpState is what the UE's packets say of a mapping's connections.
type tcpState uint8

const (
	tcpBegins      tcpState = iota // a SYN
	tcpEstablished                 // it carries data
	tcpEnded                       // a FIN or RST, and no data since
)

// natUnit is the unit of time of mappings.
const natUnit = 1 << 30

func (m *Model) addNATs() {
	for _, n := range m.network.NATs {
		n.NAT = n.WithDefaults()
		m.nats = append(m.nats, &natState{n, map[external]*mapping{}})
	}
}

// natOfUE is the NAT that a UE is behind, natOfPublic the one that has a public address; or
// nil.
func (m *Model) natOfUE(ue netip.Addr) *natState {
	return m.natWhere(func(n *natState) bool { return n.Pool.Contains(ue) })
}

func (m *Model) natOfPublic(a netip.Addr) *natState {
	return m.natWhere(func(n *natState) bool { return n.Addresses.Contains(a) })
}

func (m *Model) natWhere(is func(*natState) bool) *natState {
	if i := slices.IndexFunc(m.nats, is); i >= 0 {
		return m.nats[i]
	}
	return nil
}

// lives says whether a mapping has not run out.
func (n *natState) lives(protocol uint8, x *mapping, now int64) bool {
	seconds := map[uint8]uint32{protoUDP: n.Timeouts.UDP, protoICMP: n.Timeouts.ICMP, protoTCP: n.Timeouts.TCPTransitory}[protocol]
	if protocol == protoTCP && x.tcp == tcpEstablished {
		seconds = n.Timeouts.TCP
	}
	return now-x.sent <= (int64(seconds)*1e9+natUnit-1)/natUnit
}

// choices are the public ports that a port of a UE may have: two groups of eight.
func (n *natState) choices(b nat.Block, port uint16) (groups [2][]uint16) {
	for i, first := range n.Choices(b, port) {
		for at := range uint16(nat.Group) {
			groups[i] = append(groups[i], first+at)
		}
	}
	return groups
}

// publicPort is the public port of a UE's flow, which gets one where it has none, unless it
// is what an ICMP error quotes; false: it has none.
func (n *natState) publicPort(b nat.Block, f flowEnd, now int64) (uint16, bool) {
	groups := n.choices(b, f.port)
	for _, port := range slices.Concat(groups[0], groups[1]) {
		x := n.mappings[external{f.protocol, b.Address, port}]
		if x == nil || x.private != f.port || f.quoted && !n.lives(f.protocol, x, now) {
			continue
		}
		if !f.quoted {
			if !n.lives(f.protocol, x, now) {
				x.tcp = tcpBegins
			}
			x.tcp = f.after(x.tcp)
			x.sent = now
		}
		return port, true
	}
	if f.quoted {
		return 0, false
	}
	for _, parity := range []uint16{f.port & 1, ^f.port & 1} { // RFC 4787, REQ-4
		for _, port := range slices.Concat(groups[0], groups[1]) {
			at := external{f.protocol, b.Address, port}
			if x := n.mappings[at]; port&1 == parity && (x == nil || !n.lives(f.protocol, x, now)) {
				n.mappings[at] = &mapping{f.port, f.after(tcpBegins), now}
				return port, true
			}
		}
	}
	return 0, false
}

// flowEnd is one side of a flow.
type flowEnd struct {
	protocol uint8
	port     uint16 // ICMP's queries: the identifier
	quoted   bool   // by an ICMP error, on the other side
	syn, end bool   // TCP: SYN; FIN or RST
	data     bool   // TCP: it carries some
}

// after is the state of a mapping after the packet. The last ACK of a connection that the UE closes
// leaves it ended; data is another connection's.
func (f flowEnd) after(before tcpState) tcpState {
	switch {
	case f.end, before == tcpEnded && !f.syn && !f.data:
		return tcpEnded
	case f.syn && before != tcpEstablished:
		return tcpBegins
	}
	return tcpEstablished
}

// endOf reads the source or the destination of a packet that is whole or a first fragment;
// false where there is nothing to translate.
func endOf(p v4, destination bool) (f flowEnd, ok bool) {
	l4 := p[p.header():]
	if p.protocol() == protoICMP && len(l4) > 0 && (l4[0] == 3 || l4[0] == 11 || l4[0] == 12) {
		return quotedEnd(p, destination)
	}
	if f, ok = transportEnd(p.protocol(), l4, destination); !ok || f.protocol != protoTCP {
		return f, ok
	}
	if len(l4) < 20 {
		return f, false
	}
	const fin, syn, rst = 1, 2, 4
	f.end, f.syn = l4[13]&(fin|rst) != 0, l4[13]&syn != 0
	f.data = len(l4) > int(l4[12]>>4)*4
	return f, true
}

// quotedEnd is that side of a flow of which the ICMP error's receiver or sender is: what it
// quotes went the other way.
func quotedEnd(p v4, destination bool) (f flowEnd, ok bool) {
	src, dst := addresses(p)
	q, ok := quotedBy(p)
	if !ok || q[0] != 0x45 || q.offset() != 0 || destination && q.src() != dst || !destination && q.dst() != src {
		return f, false
	}
	f, ok = transportEnd(q.protocol(), q[20:], !destination)
	f.quoted = true
	return f, ok
}

// quotedBy is what an ICMP error quotes.
func quotedBy(p v4) (v4, bool) {
	at := p.header() + 8
	if len(p) < at+20 {
		return nil, false
	}
	return p[at:], true
}

func transportEnd(protocol uint8, l4 []byte, destination bool) (f flowEnd, ok bool) {
	if len(l4) < 8 {
		return f, false
	}
	at := 0
	switch protocol {
	case protoTCP, protoUDP:
		if destination {
			at = 2
		}
	case protoICMP:
		if !slices.Contains([]uint8{0, 8, 13, 14}, l4[0]) {
			return f, false
		}
		at = 4
	default:
		return f, false
	}
	return flowEnd{protocol: protocol, port: be.Uint16(l4[at:])}, true
}

// translated is a packet with another address and port on one side. The zero flowEnd has no
// port: a later fragment.
func translated(p v4, destination bool, f flowEnd, to netip.Addr, port uint16) v4 {
	p = slices.Clone(p)
	l4 := p[p.header():]
	if !f.quoted {
		renumber(p, l4, destination, f.protocol, to, port)
		return p
	}
	write(p[addressAt(destination):], to.AsSlice(), p[10:])
	q, _ := quotedBy(p)
	before := fold(wordSum(q))
	renumber(q, q[20:], !destination, f.protocol, to, port)
	if after := fold(wordSum(q)); after != before {
		be.PutUint16(l4[2:], updated(be.Uint16(l4[2:]), before, after))
	}
	return p
}

func addressAt(destination bool) int {
	if destination {
		return 16
	}
	return 12
}

// renumber writes an address and a port, and the checksums follow.
func renumber(p v4, l4 []byte, destination bool, protocol uint8, to netip.Addr, port uint16) {
	var sum []byte
	at := checksumOffset(protocol)
	if at >= 0 && len(l4) >= at+2 && (protocol != protoUDP || be.Uint16(l4[at:]) != 0) {
		sum = l4[at:]
	}
	if sum == nil || protocol == protoICMP {
		write(p[addressAt(destination):], to.AsSlice(), p[10:])
	} else {
		write(p[addressAt(destination):], to.AsSlice(), p[10:], sum)
	}
	if protocol == 0 {
		return
	}
	where := map[bool]int{false: 0, true: 2}[destination]
	if protocol == protoICMP {
		where = 4
	}
	value := be.AppendUint16(nil, port)
	if sum == nil {
		write(l4[where:], value)
		return
	}
	write(l4[where:], value, sum)
	if protocol == protoUDP && be.Uint16(sum) == 0 {
		be.PutUint16(sum, 0xffff)
	}
}

// write writes words, and the checksums that cover them follow (RFC 1624).
func write(at, value []byte, sums ...[]byte) {
	for i := 0; i < len(value); i += 2 {
		for _, sum := range sums {
			be.PutUint16(sum, updated(be.Uint16(sum), be.Uint16(at[i:]), be.Uint16(value[i:])))
		}
		copy(at[i:], value[i:i+2])
	}
}

// fromOutside takes a packet that comes in by N6: where it is for a public address, it is its
// UE's from here on. The second result says whether the journey ends.
func (j *journey) fromOutside(p v4, malformed bool) (Result, bool) {
	src, dst := p.src(), p.dst()
	n := j.m.natOfPublic(dst)
	switch {
	case len(j.m.nats) == 0:
		return Result{}, false
	case j.m.natOfPublic(src) != nil:
		return j.drop(UESource), true
	case j.m.natOfUE(dst) != nil:
		return j.drop(NATBehind), true
	case n == nil:
		return Result{}, false
	case malformed:
		return j.drop(IPv4Malformed), true
	case p.fragment():
		return j.reassemble(), true
	}
	in, reason := n.toUE(j.complete(j.packet, j.l3), j.m.natNow())
	if reason != "" {
		return j.drop(reason), true
	}
	j.packet = in
	j.stands(in, j.l3)
	j.fromNAT = true
	return Result{}, false
}

// toUE is a packet to a public address, as its UE gets it.
func (n *natState) toUE(p v4, now int64) (v4, Reason) {
	f, ok := endOf(p, true)
	if !ok {
		return nil, NATProtocol
	}
	ue, has := n.UEOf(n.Pool, p.dst(), f.port)
	x := n.mappings[external{f.protocol, p.dst(), f.port}]
	if !has || x == nil || !n.lives(f.protocol, x, now) {
		return nil, NATNoMapping
	}
	return translated(p, true, f, ue, x.private), ""
}

// fromUE is a packet of a UE, as others get it.
func (n *natState) fromUE(p v4, now int64) (v4, Reason) {
	block, _ := n.BlockOf(n.Pool, p.src())
	if p.offset() != 0 {
		return n.identified(translated(p, false, flowEnd{}, block.Address, 0), block), ""
	}
	f, ok := endOf(p, false)
	if !ok {
		return nil, NATProtocol
	}
	port, has := n.publicPort(block, f, now)
	switch {
	case !has && f.quoted:
		return nil, NATNoMapping
	case !has:
		return nil, NATPorts
	}
	return n.identified(translated(p, false, f, block.Address, port), block), ""
}

// identified gives a packet that is a fragment, or may become some, an identification that no other
// UE of its public address has (RFC 6864 section 5.3). One that may not be fragmented keeps its own.
func (n *natState) identified(p v4, b nat.Block) v4 {
	const df, all = 0x4000, 0x7fff // with MF and the offset
	if be.Uint16(p[6:])&all == df {
		return p
	}
	part := 1 << 16 / n.UEsPerAddress()
	number := uint32(b.First-nat.FirstPort) / n.PortsPerUE
	write(p[4:], be.AppendUint16(nil, uint16(number*part+uint32(be.Uint16(p[4:]))%part)), p[10:])
	return p
}

// outside is a packet that leaves by a route, and is fit to: behind a NAT by another address,
// and to another UE where its destination is a public one.
func (u upf) outside(r *ruleState, t tpdu) Result {
	m := u.j.m
	src, dst := addresses(t.packet)
	if n := m.natOfUE(src); n != nil && !r.Forward.Internal {
		out, reason := n.fromUE(u.j.complete(t.packet, t.l3), m.natNow())
		if reason != "" {
			return u.j.drop(reason)
		}
		t.packet, u.j.fromNAT = out, false
		if n = m.natOfPublic(dst); n != nil {
			return u.hairpin(n, t)
		}
	}
	return u.j.release(t.packet, t.l3, uint8(t.outer), outbound{table: r.Forward.Table})
}

// hairpin is a packet of a UE for the public address of another one (RFC 4787, REQ-9).
func (u upf) hairpin(n *natState, t tpdu) Result {
	if v4(t.packet).offset() != 0 {
		return u.j.drop(Fragment)
	}
	in, reason := n.toUE(t.packet, u.j.m.natNow())
	if reason != "" {
		return u.j.drop(reason)
	}
	rules, ue := u.j.m.ueOrFramed(in.dst())
	if !ue {
		return u.j.drop(NATNoMapping)
	}
	u.j.stands(in, t.l3)
	t.packet = in
	return u.meetAsUE(rules, t)
}

// natNow is the model's clock in units of mappings.
func (m *Model) natNow() int64 { return m.nanosecond / natUnit }

// stands makes copies show a packet as NAT left it.
func (j *journey) stands(p []byte, l3 int) {
	j.now = slices.Clone(j.frame)
	copy(j.now[l3:], p)
}

// complete is a packet with its checksum completed, also in what the slow path gets.
func (j *journey) complete(p []byte, l3 int) v4 {
	if !j.port.PartialChecksum {
		return p
	}
	p = j.completed(p, true)
	j.frame = slices.Clone(j.frame)
	copy(j.frame[l3:], p)
	return p
}

// forgetMappings has the block of a UE begin without mappings.
func (m *Model) forgetMappings(ue netip.Addr) {
	n := m.natOfUE(ue)
	if n == nil {
		return
	}
	block, _ := n.BlockOf(n.Pool, ue)
	maps.DeleteFunc(n.mappings, func(at external, _ *mapping) bool {
		return at.address == block.Address && at.port >= block.First && at.port <= block.Last
	})
}
