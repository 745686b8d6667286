package event

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
)

// PuntKind says what the daemon is to do with a packet.
type PuntKind uint32

// The kinds.
const (
	PuntReassemble      = PuntKind(abi.PuntKindPUNT_REASSEMBLE)
	PuntFragment        = PuntKind(abi.PuntKindPUNT_FRAGMENT)
	PuntICMP            = PuntKind(abi.PuntKindPUNT_ICMP)
	PuntErrorIndication = PuntKind(abi.PuntKindPUNT_ERROR_INDICATION)
	PuntNeighbour       = PuntKind(abi.PuntKindPUNT_NEIGHBOUR)
	PuntBuffer          = PuntKind(abi.PuntKindPUNT_BUFFER)         // for an idle UE
	PuntDuplicate       = PuntKind(abi.PuntKindPUNT_DUPLICATE)      // a copy
	PuntFlood           = PuntKind(abi.PuntKindPUNT_FLOOD)          // for all Ethernet sessions of Link
	PuntSend            = PuntKind(abi.PuntKindPUNT_SEND)           // to a GTP-U peer that only the kernel reaches
	PuntPathMTU         = PuntKind(abi.PuntKindPUNT_PATH_MTU)       // an error about the path of a tunnel, or a copy
	PuntFragmentOuter   = PuntKind(abi.PuntKindPUNT_FRAGMENT_OUTER) // an outer packet of this node's, too big for Info bytes
)

// Who vouches for the sender of PuntPathMTU, in Info.
const (
	VouchesSR   = uint32(abi.VouchesVOUCHES_SR)   // the port has the role sr, and the source is inside the domain
	VouchesGTPU = uint32(abi.VouchesVOUCHES_GTPU) // the source is among the peers of a port with the role n3 or n9
)

// Punt is a packet that the data path hands to the daemon.
type Punt struct {
	Kind       PuntKind
	Ifindex    int
	Info       uint32 // ICMP: pointer or MTU; fragment, of a tunnel, too: MTU; GTP-U: TEID; path MTU: who vouches for it
	L3         int    // offset of the IP header meant
	Type, Code uint8  // ICMPv6, also where the packet is IPv4
	Table      uint32 // kernel table that the packet was looked up in; 0: none
	// Rewritten says that the frame is not as it arrived: the packet was for this node again.
	Rewritten bool
	// NextHop on the interface Egress is what PuntNeighbour is about. PuntFragmentOuter is a frame
	// that is ready to leave by Egress.
	NextHop netip.Addr
	Egress  int
	// Session and Rule are what PuntBuffer, PuntDuplicate and PuntSend are about, L3 is
	// the offset of the packet; of PuntICMP with SessionTable they are the
	// sender's. Session 0: the rule has gone meanwhile.
	Session uint64
	Rule    uint16
	Entry   uint32        // PuntBuffer: the rule's entry of pdr, for Taken
	Link    ethernet.Link // PuntFlood; the zero value: it has gone meanwhile
	Data    []byte        // the frame on arrival (of PuntFragmentOuter as it is to leave), 2048 bytes at most
}

// SessionTable is Punt.Table of a packet from a UE: errors go to it by its own
// rules.
const SessionTable = 0xffffffff

// Punts are the packets that the data path hands to the daemon. Its functions say
// what the numbers in records mean, and take the data path's lock.
type Punts struct {
	Rings *Rings
	// RuleAt is whose an entry of pdr is; session 0: nobody's.
	RuleAt func(pdr uint32) (session uint64, rule uint16)
	// Taking notes that somebody has a packet of PuntBuffer in hand, until he calls Taken.
	Taking func(pdr uint32)
	// LinkAt returns the link of a number, or the zero value if no link has it.
	LinkAt func(number uint32) ethernet.Link
}

// Read calls f for each packet that the data path hands up, until ctx ends.
// There is one reader at a time.
func (p *Punts) Read(ctx context.Context, f func(Punt)) error {
	return Read(ctx, p.Rings, abi.MapSlowPath, func(r *abi.Punt) {
		punt := Punt{
			Kind: PuntKind(r.Kind), Ifindex: int(r.Ifindex), Info: r.Info, L3: int(r.L3), Type: r.Type, Code: r.Code,
			Table: r.Table, Rewritten: r.Turn != 0,
			Data: append([]byte(nil), r.Data[:min(int(r.Length), len(r.Data))]...),
		}
		if punt.Kind == PuntNeighbour {
			punt.NextHop, punt.Egress = netip.AddrFrom16(r.Address.B).Unmap(), int(r.Egress)
		}
		if punt.Kind == PuntFragmentOuter {
			punt.Egress = int(r.Egress)
		}
		switch {
		case punt.Kind == PuntBuffer || punt.Kind == PuntDuplicate || punt.Kind == PuntSend:
			punt.Session, punt.Rule = p.RuleAt(r.Info)
		case punt.Kind == PuntICMP && punt.Table == SessionTable:
			punt.Session, punt.Rule = p.RuleAt(r.Egress)
		}
		switch punt.Kind {
		case PuntFlood:
			punt.Link = p.LinkAt(r.Info)
		case PuntBuffer:
			punt.Entry = r.Info
			p.Taking(r.Info)
		}
		f(punt)
	})
}
