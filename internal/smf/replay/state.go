package replay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// state is what is known of a copy of a session.
type state struct {
	up     uint64 // SEID that the live UPF gave; 0: none
	live   bool   // established, and not deleted
	fteids []choice
	pdrs   []pdr
	ue     [2]netip.Addr
	peer   fteid // the gNB's
	// Reports that came, once each, and how many of the capture's were waited for.
	reported []wire.Header
	awaited  int
}

// choice is an F-TEID that the capture's UPF chose, and what the live one chose in
// its place: the value of an F-TEID IE.
type choice struct {
	captured fteid
	live     []byte
}

// pdr is where packets enter by a PDR.
type pdr struct {
	source uint8 // Source Interface
	fteid  []byte
}

// liveSEID is the live UPF's in the place of a captured one.
func (s *state) liveSEID(captured uint64) uint64 {
	if captured == 0 {
		return 0
	}
	return s.up
}

// chosen is the F-TEID that the live UPF chose in the place of one of the capture;
// nil: the capture's UPF did not choose it.
func (s *state) chosen(f fteid) []byte {
	for _, c := range s.fteids {
		if c.captured == f {
			return c.live
		}
	}
	return nil
}

// choose notes what both UPFs chose for a PDR, and says what does not fit what they
// chose before: PDRs share an F-TEID with both, or with neither.
func (s *state) choose(captured fteid, live []byte) (problem string) {
	for _, c := range s.fteids {
		switch same := bytes.Equal(c.live, live); {
		case c.captured == captured && !same:
			return "another one than the PDRs that it shares it with"
		case c.captured != captured && same:
			return "the one of a PDR that does not share it"
		case same:
			return ""
		}
	}
	s.fteids = append(s.fteids, choice{captured, slices.Clone(live)})
	return ""
}

// learn takes in what an accepted request said, and what its answer did.
func (s *state) learn(request, answer wire.Header) {
	if seid := seidOf(find(answer.Payload, ie.FSEID)); seid != 0 {
		s.up = seid
	}
	given := createdFTEIDs(answer.Payload)
	s.tunnels(request.Payload)
	wire.Each(request.Payload, func(kind uint16, value []byte) {
		if kind != ie.CreatePDR {
			return
		}
		pdi := find(value, ie.PDI)
		f := find(pdi, ie.FTEID)
		if id := find(value, ie.PDRID); len(id) == 2 && given[[2]byte(id)] != nil {
			f = given[[2]byte(id)]
		}
		if source := find(pdi, ie.SourceInterface); len(source) == 1 && tunnel(f).TEID != 0 {
			s.pdrs = append(s.pdrs, pdr{source[0] & 0xf, slices.Clone(f)})
		}
		v4, v6 := ueAddresses(find(pdi, ie.UEIPAddress))
		if v4.IsValid() {
			s.ue[0] = v4
		}
		if v6.IsValid() {
			s.ue[1] = v6
		}
	})
}

// tunnels notes where the gNB is.
func (s *state) tunnels(b []byte) {
	wire.Each(b, func(kind uint16, value []byte) {
		switch kind {
		case ie.CreateFAR, ie.UpdateFAR:
			s.tunnels(value)
		case ie.ForwardingParameters, ie.UpdateForwardingParameters:
			if o, ok := readOuter(find(value, ie.OuterHeaderCreation)); ok && destinationOf(kind, value, access) == access {
				s.peer = o
			}
		}
	})
}

// createdFTEIDs are the values of the F-TEIDs that an answer names, by PDR ID.
func createdFTEIDs(b []byte) map[[2]byte][]byte {
	list := map[[2]byte][]byte{}
	wire.Each(b, func(kind uint16, value []byte) {
		if kind != ie.CreatedPDR {
			return
		}
		if id, f := find(value, ie.PDRID), find(value, ie.FTEID); len(id) == 2 && len(f) >= 5 {
			list[[2]byte(id)] = f
		}
	})
	return list
}

// entry is the F-TEID by which packets from an interface enter; nil: none.
func (s *state) entry(source uint8) []byte {
	for _, p := range slices.Backward(s.pdrs) {
		if p.source == source {
			return p.fteid
		}
	}
	return nil
}

// Session is a copy of a session, as far as it is known.
type Session struct {
	Session, Copy  int // from 0
	Established    bool
	CPSEID, UPSEID uint64
	UE4, UE6       netip.Addr
	// Access and CPFunction are the UPF's F-TEIDs for the gNB and for the SMF, Peer
	// the gNB's.
	Access, CPFunction, Peer Tunnel
}

// Tunnel is an F-TEID; a TEID of 0: none.
type Tunnel struct {
	TEID         uint32
	Addr4, Addr6 netip.Addr
}

// tunnel reads the value of an F-TEID.
func tunnel(value []byte) (t Tunnel) {
	if len(value) < 5 {
		return t
	}
	t.TEID = binary.BigEndian.Uint32(value[1:])
	t.Addr4, t.Addr6 = wire.ReadAddrs(value[5:], value[0]&wire.FTEIDV4 != 0, value[0]&wire.FTEIDV6 != 0)
	return t
}

// tunnel is the F-TEID in the same form.
func (f fteid) tunnel() Tunnel {
	if f.addr.Is4() {
		return Tunnel{TEID: f.teid, Addr4: f.addr}
	}
	return Tunnel{TEID: f.teid, Addr6: f.addr}
}

// begin is before the session is established, maybe once more. Where the capture's
// UPF chose F-TEIDs what was chosen before is void.
func (s *state) begin(answer *Message) {
	s.pdrs, s.reported, s.awaited = nil, nil, 0
	if len(createdFTEIDs(answer.Payload)) > 0 {
		s.fteids = nil
	}
}
