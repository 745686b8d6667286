package upf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/session"
)

// What free5GC's SMF sends (internal/smf/replay/captures/free5gc.pcap): each request begins
// with its F-SEID, and an Update FAR that forwards comes with an Update PDR that repeats
// what the PDR is.
const (
	fseid5GC   = "0039000d0200000000000010000a040002"
	pdr5GC     = "00090054003800020002001d0004000000ff0002001a001400010100160008696e7465726e6574005d0005060a3c0001006c00040000000200510004000000010051000400000002006d000400000002006d000400000001"
	far5GC     = "000a0035006c000400000002002c000102000b0024002a00010000160008696e7465726e65740054000a0100000000010ac800020031000100"
	marker5GC  = "000a0035006c000400000002002c000102000b0024002a00010000160008696e7465726e65740054000a0100000000010ac800020031000102"
	idle5GC    = "000a0035006c000400000002002c00010c000b0024002a00010000160008696e7465726e65740054000a0100000000010ac800020031000100"
	query5GC   = "004d00080051000400000001004d00080051000400000002"
	chosen5GC  = "00090050003800020002001d0004000000ff00020016001400010100160008696e7465726e6574005d000114006c00040000000200510004000000010051000400000002006d000400000002006d000400000001" // the UPF chooses the UE's address
	updateURR1 = "000d002d0051000400000001003e000102002500020300001f001106000000000007a120000000000007a1200064000111"
)

var free5gc = core{"free5gc", 2, phone{action: session.Forward, precedence: 255}, (*phones).another5GC}

// modification5GC is a request of free5GC's SMF for a phone.
func modification5GC(one *phone, ies string) []byte {
	m := modification(fseid5GC + ies)
	m[0] |= 2 // MP
	set := func(head, value []byte) {
		for rest := m; ; {
			at := bytes.Index(rest, head)
			if at < 0 {
				return
			}
			copy(rest[at+len(head):], value)
			rest = rest[at+len(head):]
		}
	}
	set([]byte{0, 57, 0, 13, 2}, binary.BigEndian.AppendUint64(nil, one.cpSEID))
	set([]byte{0, 93, 0, 5, 6}, one.ue.AsSlice())
	set([]byte{0, 29, 0, 4}, binary.BigEndian.AppendUint32(nil, one.precedence))
	set([]byte{0, 84, 0, 10, 1, 0}, append(binary.BigEndian.AppendUint32(nil, one.teid), one.gnb.AsSlice()...))
	return m
}

// another5GC is core.another.
func (p *phones) another5GC(one *phone) []byte {
	r := p.random
	move := func() {
		one.action, one.gnb, one.teid = session.Forward, netip.AddrFrom4([4]byte{10, 200, 1, byte(r.IntN(12))}), r.Uint32N(1000)+1
	}
	switch n := r.IntN(20); {
	case n < 9 || !one.gnb.IsValid():
		move()
		return modification5GC(one, pdr5GC+far5GC)
	case n < 12:
		move()
		return modification5GC(one, marker5GC)
	case n < 14:
		one.action = session.Buffer | session.Notify
		return modification5GC(one, idle5GC)
	case n < 15: // the daemon's, because of the QER
		one.action = session.Buffer | session.Notify
		return modification5GC(one, idle5GC+quota)
	case n < 18:
		return modification5GC(one, updateURR1)
	default: // what it does not repeat
		one.precedence = 200 + r.Uint32N(3)
		move()
		return modification5GC(one, pdr5GC+far5GC)
	}
}

// TestTheDataPathKnowsWhatIsRepeated: an Update PDR that the daemon has seen change nothing
// is answered in the data path, until the session's PDRs are others.
func TestTheDataPathKnowsWhatIsRepeated(t *testing.T) {
	p := newPhones(t, free5gc, 1, newTestDaemon(t, n4Places), newTestDaemon(t, 0))
	one := p.list[0]
	one.gnb, one.teid = netip.AddrFrom4([4]byte{10, 200, 1, 1}), 1
	here := uint64(0)
	ask := func(what string, fast bool, ies string) {
		t.Helper()
		if one.teid++; fast {
			here++
		}
		answers := p.each(modification5GC(one, ies), one)
		if ies == far5GC+query5GC { // usage has times
			answers[0], answers[1] = answers[0][:21], answers[1][:21]
		}
		if !bytes.Equal(answers[0], answers[1]) {
			t.Errorf("%s: answer %x, the daemon's %x", what, answers[0], answers[1])
		}
		if all := p.upfs[0].everything(); all.Here != here {
			t.Fatalf("%s: the data path has answered %d, want %d", what, all.Here, here)
		}
	}
	both := pdr5GC + far5GC
	ask("a gNB that is new, and an Update PDR", false, both)
	ask("the same Update PDR", true, both)
	ask("without it", true, far5GC)
	ask("behind the Update FAR", true, far5GC+pdr5GC)
	ask("twice", false, pdr5GC+both)
	ask("twice again", true, pdr5GC+both)
	ask("once again", false, both)
	ask("usage in between", false, far5GC+query5GC)
	ask("after it", true, both)
	ask("another URR", false, updateURR1)
	ask("after that", true, both)
	ask("an address of the UE that the UPF tells", false, chosen5GC+far5GC)
	ask("and tells again", false, chosen5GC+far5GC)
	ask("told by the SMF", false, both)
	one.precedence = 200
	ask("another precedence", false, both)
	p.check()
	one.precedence = 255
	ask("what was known before it", false, both)
	p.check()
	ask("that changes nothing", false, both)
	ask("and is known again", true, both)
	removal, _ := hex.DecodeString("000f0006003800020002")
	create, _ := hex.DecodeString(pdr5GC)
	create[1] = 1
	ask("a PDR less and the same once more", false, hex.EncodeToString(removal)+hex.EncodeToString(create)+both)
	ask("which says nothing of Update PDR", false, both)
	ask("as it was", true, both)
	p.upfs[0].kill()
	p.upfs[0].start()
	ask("after a start", true, both)
	p.check()
	answered := one.cpSEID
	one.cpSEID = 0x7777
	p.seids[0][one.cpSEID], p.seids[1][one.cpSEID] = p.seids[0][answered], p.seids[1][answered]
	ask("another F-SEID", false, both)
	ask("that F-SEID", true, both)
	one.cpSEID = 0x7778
	p.seids[0][one.cpSEID], p.seids[1][one.cpSEID] = p.seids[0][answered], p.seids[1][answered]
	ask("one more F-SEID", false, far5GC)
	p.check()
}
