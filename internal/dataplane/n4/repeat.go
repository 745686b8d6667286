package n4

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"

	"github.com/dchest/siphash"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/session"
)

// Owner is what an SMF calls a session: its CP F-SEID.
type Owner struct {
	SEID uint64
	Addr netip.Addr
}

// fseid is the IE that repeats it, where the SMF names one address.
func (o Owner) fseid() []byte {
	const ieFSEID, flagV4, flagV6 = 57, 2, 1
	flags := byte(flagV4)
	if o.Addr.Is6() {
		flags = flagV6
	}
	addr := o.Addr.AsSlice()
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 32), ieFSEID)
	b = binary.BigEndian.AppendUint16(b, uint16(1+8+len(addr)))
	b = binary.BigEndian.AppendUint64(append(b, flags), o.SEID)
	return append(b, addr...)
}

// Hash is what the data path compares of IEs that a request repeats: SipHash-2-4 (see
// bpf/n4/hash.h). 0: of nothing, and of more than the data path reads.
func (n *Table) Hash(ies ...[]byte) uint64 {
	if len(ies) > int(abi.N4LimitsN4PDRS) {
		return 0
	}
	var b []byte
	for _, ie := range ies {
		b = append(b, ie...)
		b = append(b, make([]byte, -len(ie)&7)...)
	}
	if len(b) == 0 || len(b) > int(abi.N4LimitsN4REPEATED_OCTETS) {
		return 0
	}
	return siphash.Hash(n.t.State.Load(0, wordKey), n.t.State.Load(0, wordKey+1), b) | 1
}

// Repeat notes Update PDRs that change nothing of a session, which is locked, until its
// PDRs change. Others are not known any more.
func (n *Table) Repeat(seid uint64, updates ...[]byte) {
	n.t.Sessions.Change(session.PlaceOf(seid), wordPDRs, n.Hash(updates...))
}

// makeKey makes the key of hashes, once in the life of the table.
func (n *Table) makeKey() {
	if n.t.State.Load(0, wordKey)|n.t.State.Load(0, wordKey+1) != 0 {
		return
	}
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	for i := range 2 {
		n.t.State.Store(0, wordKey+i, binary.NativeEndian.Uint64(key[8*i:]))
	}
}
