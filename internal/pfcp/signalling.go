package pfcp

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// Signalling is what answers requests beside the server: the data path. The server calls
// Take before it looks at a session of an association that goes on, and Give after each request about
// one, also if that was refused, or answered before.
type Signalling interface {
	// Take keeps the data path from a session until Give. From then on it is one of the association
	// that its Node ID has now. answered: the request of that
	// sequence number is done, and was answered with Cause 1 (Request accepted) alone, by the
	// data path or by an earlier process.
	Take(seid uint64, sequence uint32) (answered bool)
	// Give ends what Take began. accepted: the request was answered with that Cause alone.
	Give(seid uint64, sequence uint32, accepted bool)
	// Repeat comes between Take and Give: these Update PDRs, which are all of a request,
	// change nothing while the session has the PDRs that it has.
	Repeat(seid uint64, updates [][]byte)
	// SetNode says what the data path needs to know of this node and its SMFs.
	SetNode(Node)
	// Places is how many places of SEIDs the data path knows: the first ones.
	Places() uint32
}

// Node is this node as SMFs see it, and the SMFs that may be answered.
type Node struct {
	Addresses []netip.Addr // of N4
	Recovery  uint32       // Recovery Time Stamp, as PFCP has it
	Peers     []Peer
}

// Peer is an SMF with an association.
type Peer struct {
	Node  string       // Node ID
	Addrs []netip.Addr // of it; at least one
	// Serial is another one once the association was set up again: its former sessions go, and are
	// not to be answered for meanwhile.
	Serial uint64
	// Recovery is the Recovery Time Stamp of those of its heartbeats that the data path
	// may answer: its own, or one that it has not, so that the daemon answers them all.
	Recovery uint32
}

// alone stands in for a data path that answers nothing.
type alone struct{}

func (alone) Take(uint64, uint32) bool  { return false }
func (alone) Give(uint64, uint32, bool) {}
func (alone) Repeat(uint64, [][]byte)   {}
func (alone) SetNode(Node)              {}
func (alone) Places() uint32            { return 0 }

// repeat tells the data path which Update PDRs have changed nothing: those that free5GC's
// SMF sends with each Update FAR. What PFDs describe may change without the session.
func (s *Server) repeat(from, to *session.Session, body wire.IEs) {
	if s.signalling.Places() == 0 || to.NamesApplications() || !reflect.DeepEqual(from.PDRs, to.PDRs) {
		return
	}
	var updates [][]byte
	for len(body) > 0 {
		octets, err := body.Next()
		if err != nil {
			return
		}
		switch binary.BigEndian.Uint16(octets) {
		case ie.UpdatePDR:
			updates = append(updates, octets)
		case ie.CreatePDR, ie.RemovePDR: // what these do is undone
			return
		}
	}
	s.signalling.Repeat(to.SEID, updates)
}

// share tells the data path which SMFs may be answered: those with an association that we
// listen to.
func (s *Server) share() {
	s.sharing.Lock() // the last one to look is the last one to tell
	defer s.sharing.Unlock()
	stamps := s.stamps.Load()
	node := Node{Addresses: s.cfg.Addresses, Recovery: stamps.Own}
	smfs := s.smfs.Load()
	for _, a := range s.peers.Load().sorted() {
		p := Peer{Node: a.node, Addrs: slices.Clone(a.addrs), Serial: a.serial, Recovery: a.recovery}
		if stamps.areLater(a.addrs) { // the data path has one stamp for all
			p.Recovery = ^a.recovery
		}
		p.Addrs = slices.DeleteFunc(p.Addrs, func(addr netip.Addr) bool { return !smfs.allows(addr) })
		if len(p.Addrs) > 0 {
			node.Peers = append(node.Peers, p)
		}
	}
	s.signalling.SetNode(node)
}
