package pfcp

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/dchest/siphash"
	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// What free5GC's SMF repeats (internal/smf/replay/captures/free5gc.pcap): its F-SEID and PDR 2, here with an
// Update FAR; and PDR 1.
const (
	n4FSEID      = "0039000d0200000000000000017f000001"
	n4PDR        = "00090054003800020002001d0004000000ff0002001a001400010100160008696e7465726e6574005d0005060a3c0001006c00040000000200510004000000010051000400000002006d000400000002006d000400000001"
	n4OtherPDR   = "00090066003800020001001d0004000000ff0002002700140001000015000901000000027f00000800160008696e7465726e6574005d0005020a3c0001005f000100006c00040000000100510004000000010051000400000002006d000400000002006d000400000001"
	n4Forward5GC = "000a0035006c000400000002002c000102000b0024002a00010000160008696e7465726e65740054000a0100000000017f0001010031000100"
)

// n4Request is a Session Modification Request of free5GC's SMF.
func n4Request(ies string) string {
	body, _ := hex.DecodeString(ies)
	head := binary.BigEndian.AppendUint16([]byte{0x23, 52}, uint16(12+len(body)))
	return hex.EncodeToString(head) + "0000000000000001000004c0" + ies
}

// n4Session is what the seeds are about: the rules that free5GC's SMF has made, and FARs
// of which the data path would know all.
func n4Session(t *testing.T) *session.Session {
	t.Helper()
	s := &session.Session{CPSEID: 1, CPAddr: netip.MustParseAddr("127.0.0.1")}
	b := &request.Builder{Features: everything, To: s}
	for _, text := range []string{n4OtherPDR, n4PDR} {
		create, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		binary.BigEndian.PutUint16(create, ie.CreatePDR)
		b.Modification(create)
	}
	if b.Err != nil {
		t.Fatal(b.Err)
	}
	for id := range uint32(4) {
		s.FARs = append(s.FARs, n4FAR(id+1))
	}
	return s
}

// n4Hashes are those of the F-SEID and of all Update PDRs of a request, as
// internal/dataplane/n4 has them, with the key of bpf/native/n4.c; 0: of nothing.
func n4Hashes(t *testing.T, body wire.IEs) (fseid, pdrs uint64) {
	t.Helper()
	var parts [2][]byte
	for len(body) > 0 {
		octets, err := body.Next()
		if err != nil {
			t.Errorf("the daemon does not read IEs to their end: %v", err)
			return 0, 0
		}
		filled := append(slices.Clone(octets), make([]byte, -len(octets)&7)...)
		switch binary.BigEndian.Uint16(octets) {
		case ie.FSEID:
			parts[0] = append(parts[0], filled...)
		case ie.UpdatePDR:
			parts[1] = append(parts[1], filled...)
		}
	}
	hash := func(b []byte) uint64 {
		if len(b) == 0 {
			return 0
		}
		return siphash.Hash(0x0706050403020100, 0x0f0e0d0c0b0a0908, b) | 1
	}
	return hash(parts[0]), hash(parts[1])
}

// n4Repeats compares the hashes of a message with the daemon's, and says whether the data
// path could take what they are of for what n4Session has.
func n4Repeats(t *testing.T, body wire.IEs, m *n4Message) bool {
	t.Helper()
	fseid, pdrs := n4Hashes(t, body)
	if m.FSEID != fseid || m.PDRs != pdrs {
		t.Errorf("hashes %#x %#x, the data path's %#x %#x", fseid, pdrs, m.FSEID, m.PDRs)
	}
	known := func(ies string) (fseid, pdrs uint64) {
		b, err := hex.DecodeString(ies)
		if err != nil {
			t.Fatal(err)
		}
		return n4Hashes(t, b)
	}
	ours, one := known(n4FSEID + n4PDR)
	_, two := known(n4PDR + n4OtherPDR)
	return (m.FSEID == 0 || m.FSEID == ours) && (m.PDRs == 0 || m.PDRs == one || m.PDRs == two)
}
