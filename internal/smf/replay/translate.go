package replay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Ends are what the two ends are now.
type Ends struct {
	SMF, UPF netip.Addr
	NodeID   string // of the SMF
	// Started is the SMF's Recovery Time Stamp. What the capture's SMF had before
	// its last one is earlier by as much.
	Started time.Time
}

// translation turns the capture's requests into those of a copy.
type translation struct {
	v        *Conversation
	settings *Settings
	ends     Ends
	last     time.Time // the SMF's last Recovery Time Stamp in the capture
	// What each copy has of its own: CP SEIDs, TEIDs of peers, TEIDs of the UPF's
	// that the SMF chose, IPv4 addresses of UEs and the prefixes of IPv6 ones.
	seids, peers, local, ue4, ue6 numbers
}

// Values of Destination Interface (TS 29.244 section 8.2.24).
const (
	access     = 0
	cpFunction = 3
)

// scan collects the identifiers of a conversation.
type scan struct {
	peers, local, ue4, ue6, chosen map[uint64]bool // chosen: by the UPF
	gnbs, upfs, others             []netip.Addr    // of F-TEIDs: gNBs, the UPF's, all other peers
	stamp                          []byte
}

func newTranslation(v *Conversation, settings *Settings, ends Ends) (*translation, error) {
	s := scan{map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}, nil, nil, nil, nil}
	for _, e := range v.Exchanges {
		if e.Answer != nil {
			var a wire.Answer
			a.Read(e.Answer.Payload)
			for _, c := range a.Created {
				s.chosen[uint64(c.TEID)] = true
			}
		}
		if !e.FromUPF {
			s.read(e.Request.Payload, access)
		}
	}
	for teid := range s.chosen {
		delete(s.local, teid)
	}
	seids := map[uint64]bool{}
	for _, seid := range v.Sessions {
		seids[seid] = true
	}
	t := &translation{
		v: v, settings: settings, ends: ends, seids: newNumbers(seids),
		peers: newNumbers(s.peers), local: newNumbers(s.local), ue4: newNumbers(s.ue4), ue6: newNumbers(s.ue6),
	}
	if s.stamp != nil {
		t.last = stampOf(s.stamp)
	}
	return t, errors.Join(t.fit(), settings.one("access", settings.Access, s.gnbs), settings.one("gtpu", settings.GTPU, s.upfs), settings.known(slices.Concat(s.gnbs, s.upfs, s.others)))
}

// fit is an error if the copies' numbers have no room.
func (t *translation) fit() error {
	for _, n := range []*numbers{&t.peers, &t.local, &t.ue4} {
		if len(n.places) > 0 && n.last(t.settings.Times) > math.MaxUint32 {
			return fmt.Errorf("times: TEIDs or UE addresses of %d copies end behind the largest: give fewer", t.settings.Times)
		}
	}
	return nil
}

// read collects from IEs, whose packets go to an interface.
func (s *scan) read(b []byte, destination uint8) {
	wire.Each(b, func(kind uint16, value []byte) {
		switch kind {
		case ie.RecoveryTimeStamp:
			if len(value) == 4 {
				s.stamp = value
			}
		case ie.OuterHeaderCreation:
			if o, ok := readOuter(value); ok {
				s.peers[uint64(o.teid)] = true
				if destination == access {
					s.gnbs = appendNew(s.gnbs, o.addr)
				} else {
					s.others = appendNew(s.others, o.addr)
				}
			}
		case ie.FTEID:
			if f, ok := readFTEID(value); ok {
				s.local[uint64(f.teid)] = true
				s.upfs = appendNew(s.upfs, f.addr)
			}
		case ie.UEIPAddress:
			v4, v6 := ueAddresses(value)
			if v4.IsValid() {
				s.ue4[number(v4)] = true
			}
			if v6.IsValid() {
				s.ue6[number(v6)] = true
			}
		default:
			if grouped(kind) {
				s.read(value, destinationOf(kind, value, destination))
			}
		}
	})
}

func appendNew(list []netip.Addr, a netip.Addr) []netip.Addr {
	if slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

// destinationOf is where packets by (Update) Forwarding Parameters go; of other IEs
// what it was.
func destinationOf(kind uint16, value []byte, was uint8) uint8 {
	if kind != ie.ForwardingParameters && kind != ie.UpdateForwardingParameters {
		return was
	}
	if d := find(value, ie.DestinationInterface); len(d) == 1 {
		return d[0] & 0xf
	}
	return was
}

func grouped(kind uint16) bool { return (&ie.IE{Type: kind}).IsGrouped() }

// number is an IPv4 address, or the upper half of an IPv6 address, as a number.
func number(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:])
}

// ueAddresses are those of a UE IP Address.
func ueAddresses(value []byte) (v4, v6 netip.Addr) {
	if len(value) < 1 {
		return v4, v6
	}
	return wire.ReadAddrs(value[1:], value[0]&wire.UEV4 != 0, value[0]&wire.UEV6 != 0)
}

// fteid is an F-TEID with one of its addresses.
type fteid struct {
	teid uint32
	addr netip.Addr
}

// readFTEID reads an F-TEID that names a TEID.
func readFTEID(value []byte) (f fteid, ok bool) {
	if len(value) < 5 || value[0]&wire.FTEIDCH != 0 {
		return f, false
	}
	v4, v6 := wire.ReadAddrs(value[5:], value[0]&wire.FTEIDV4 != 0, value[0]&wire.FTEIDV6 != 0)
	if f = (fteid{binary.BigEndian.Uint32(value[1:]), v4}); !v4.IsValid() {
		f.addr = v6
	}
	return f, f.addr.IsValid()
}

// Flags of an Outer Header Creation (TS 29.244 section 8.2.56): GTP-U over IPv4 and IPv6.
const gtpu4, gtpu6 = 1, 2

// readOuter reads an Outer Header Creation of GTP-U.
func readOuter(value []byte) (f fteid, ok bool) {
	if len(value) < 6 || value[0]&(gtpu4|gtpu6) == 0 {
		return f, false
	}
	v4, v6 := wire.ReadAddrs(value[6:], value[0]&gtpu4 != 0, value[0]&gtpu6 != 0)
	if f = (fteid{binary.BigEndian.Uint32(value[2:]), v4}); !v4.IsValid() {
		f.addr = v6
	}
	return f, f.addr.IsValid()
}

func stampOf(value []byte) time.Time {
	const to1970 = 2208988800 // from 1900, in seconds
	return time.Unix(int64(binary.BigEndian.Uint32(value))-to1970, 0)
}

// stamp is the Recovery Time Stamp in the place of a captured one.
func (t *translation) stamp(value []byte) time.Time {
	return t.ends.Started.Add(stampOf(value).Sub(t.last))
}

// rewriter writes the IEs of one request of a copy.
type rewriter struct {
	*translation
	copy        int
	state       *state // of the session; nil: the request is about none
	destination uint8
}

// request is an SMF's request as a copy sends it. Its sequence number is the
// Client's.
func (t *translation) request(m *Message, k int, s *state) []byte {
	w := rewriter{t, k, s, access}
	out := slices.Clone(m.Data[:len(m.Data)-len(m.Payload)])
	if hasSEID := out[0]&1 != 0; hasSEID {
		binary.BigEndian.PutUint64(out[wire.SEIDAt:], s.liveSEID(m.SEID))
	}
	out = append(out, w.ies(m.Payload)...)
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)-4))
	return out
}

func (w *rewriter) ies(b []byte) (out []byte) {
	wire.Each(b, func(kind uint16, value []byte) {
		switch rewrite := rewrites[kind]; {
		case grouped(kind):
			was := w.destination
			w.destination = destinationOf(kind, value, was)
			value = w.ies(value)
			w.destination = was
		case rewrite != nil:
			value = rewrite(w, value)
		}
		out = wire.AppendIE(out, kind, value...)
	})
	return out
}

// rewrites are the IEs that say something else than in the capture. What cannot be
// read stays: it is the UPF's to refuse.
var rewrites = map[uint16]func(w *rewriter, value []byte) []byte{
	ie.NodeID:              (*rewriter).nodeID,
	ie.RecoveryTimeStamp:   (*rewriter).recoveryTimeStamp,
	ie.FSEID:               (*rewriter).fseid,
	ie.FTEID:               (*rewriter).fteid,
	ie.OuterHeaderCreation: (*rewriter).outer,
	ie.UEIPAddress:         (*rewriter).ueAddress,
	ie.SDFFilter:           (*rewriter).filter,
}

// nodeID is the SMF's: a name stays.
func (w *rewriter) nodeID(value []byte) []byte {
	const name = 2
	if w.settings.NodeID == "" && len(value) > 0 && value[0] == name {
		return value
	}
	return ie.NewNodeIDHeuristic(w.ends.NodeID).Payload
}

func (w *rewriter) recoveryTimeStamp(value []byte) []byte {
	if len(value) != 4 {
		return value
	}
	return ie.NewRecoveryTimeStamp(w.stamp(value)).Payload
}

// fseid is the SMF's own.
func (w *rewriter) fseid(value []byte) []byte {
	if len(value) < 9 {
		return value
	}
	flag := byte(2) // V4
	if w.ends.SMF.Is6() {
		flag = 1
	}
	out := binary.BigEndian.AppendUint64([]byte{flag}, w.seids.at(seidOf(value), w.copy))
	return append(out, w.ends.SMF.AsSlice()...)
}

// fteid is one that the live UPF chose, or one that the SMF chooses.
func (w *rewriter) fteid(value []byte) []byte {
	f, ok := readFTEID(value)
	if !ok {
		return value
	}
	if w.state != nil {
		if live := w.state.chosen(f); live != nil {
			return live
		}
	}
	to := w.settings.address(f.addr)
	switch {
	case to != f.addr:
	case w.settings.GTPU.IsValid():
		to = w.settings.GTPU
	case f.addr == w.v.UPF:
		to = w.ends.UPF
	}
	out := slices.Clone(value)
	binary.BigEndian.PutUint32(out[1:], uint32(w.local.at(uint64(f.teid), w.copy)))
	if to == f.addr {
		return out
	}
	if out[0] = wire.FTEIDV4; to.Is6() {
		out[0] = wire.FTEIDV6
	}
	return append(out[:5], to.AsSlice()...)
}

// outer is a peer's tunnel: the gNB's, another UPF's or the SMF's own.
func (w *rewriter) outer(value []byte) []byte {
	f, ok := readOuter(value)
	if !ok {
		return value
	}
	to := w.settings.address(f.addr)
	switch {
	case to != f.addr:
	case w.destination == cpFunction || f.addr == w.v.SMF:
		to = w.ends.SMF
	case w.destination == access && w.settings.Access.IsValid():
		to = w.settings.Access
	}
	out := slices.Clone(value)
	binary.BigEndian.PutUint32(out[2:], uint32(w.peers.at(uint64(f.teid), w.copy)))
	if to == f.addr {
		return out
	}
	if out[0] = gtpu4; to.Is6() {
		out[0] = gtpu6
	}
	return append(out[:6], to.AsSlice()...)
}

// ueAddress is the copy's.
func (w *rewriter) ueAddress(value []byte) []byte {
	v4, v6 := ueAddresses(value)
	out := slices.Clone(value)
	at := 1
	if v4.IsValid() {
		binary.BigEndian.PutUint32(out[at:], uint32(w.ue4.at(number(v4), w.copy)))
		at += 4
	}
	if v6.IsValid() {
		binary.BigEndian.PutUint64(out[at:], w.ue6.at(number(v6), w.copy))
	}
	return out
}

// filter is an SDF filter, whose flow description may name the UE's address.
func (w *rewriter) filter(value []byte) []byte {
	const flow, head = 1, 4 // flags, a spare octet, the flow description's length
	if len(value) < head || value[0]&flow == 0 {
		return value
	}
	end := head + int(binary.BigEndian.Uint16(value[2:]))
	if end > len(value) {
		return value
	}
	words := strings.Split(string(value[head:end]), " ")
	for i, word := range words {
		if a, err := netip.ParseAddr(strings.TrimSuffix(word, "/32")); err == nil && a.Is4() {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], uint32(w.ue4.at(number(a), w.copy)))
			words[i] = strings.Replace(word, a.String(), netip.AddrFrom4(b).String(), 1)
		}
	}
	text := strings.Join(words, " ")
	out := binary.BigEndian.AppendUint16([]byte{value[0], value[1]}, uint16(len(text)))
	return slices.Concat(out, []byte(text), value[end:])
}
