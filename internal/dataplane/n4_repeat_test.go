package dataplane

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/dchest/siphash"
)

// What free5GC's SMF sends (internal/smf/replay/captures/free5gc.pcap), of the rig's session.
const (
	free5gcFSEID  = "0039000d020000000000000d920a040002"
	free5gcPDR    = "00090054003800020002001d0004000000ff0002001a001400010100160008696e7465726e6574005d0005060a3c0001006c00040000000200510004000000010051000400000002006d000400000002006d000400000001"
	free5gcFAR    = "0a0035006c000400000002002c000102000b0024002a00010000160008696e7465726e65740054000a0100000000017f0001010031000100"
	free5gcIdle   = "0a0035006c000400000002002c00010c000b0024002a00010000160008696e7465726e65740054000a0100000000017f0001010031000100"
	free5gcMarker = "0a0035006c000400000002002c000102000b0024002a00010000160008696e7465726e65740054000a0100000000017f0001010031000102"
)

// knows has the data path know an F-SEID and Update PDRs.
func (r *n4Rig) knows(fseid string, updates ...string) {
	r.publish()
	s := r.sessions.Get(n4Place)
	s.Fseid, s.Pdrs = r.hash(fseid), r.hash(updates...)
	r.sessions.Put(n4Place, &s)
}

// hash is that of bpf/n4/hash.h, of any number of IEs.
func (r *n4Rig) hash(ies ...string) uint64 {
	var all []byte
	for _, text := range ies {
		b, err := hex.DecodeString(text)
		must(r.t, err)
		all = append(all, append(b, make([]byte, -len(b)&7)...)...)
	}
	key := r.state.Get(0).Key
	return siphash.Hash(key[0], key[1], all) | 1
}

// TestN4Repeats: requests of free5GC's SMF, which repeat an F-SEID and PDRs.
func TestN4Repeats(t *testing.T) {
	r := newN4Rig(t)
	forth, back := update(free5gcFAR, 1, 2, "10.200.0.9"), update(free5gcFAR, 1, 1, "10.200.0.2")
	r.knows(free5gcFSEID, free5gcPDR)
	r.expect("handover", free5gcFSEID+free5gcPDR+forth, r.forward[1], r.act[0])
	r.expect("with an End Marker", free5gcFSEID+update(free5gcMarker, 1, 1, "10.200.0.2"), r.forward[0], r.act[0])
	r.expect("idle", free5gcFSEID+update(free5gcIdle, 1, 1, "10.200.0.2"), r.forward[0], r.act[1])
	r.expect("active", free5gcFSEID+free5gcPDR+forth, r.forward[1], r.act[0])
	r.expect("without F-SEID, in another order", back+free5gcPDR, r.forward[0], r.act[0])
	longer := "000900550038" + free5gcPDR[12:] + "00" // its end fills no word
	other := strings.Replace(free5gcPDR, "003800020002", "003800020001", 1)
	r.knows(free5gcFSEID, longer, other)
	r.expect("two Update PDRs", longer+forth+other, r.forward[1], r.act[0])
	eight := slices.Repeat([]string{"00090006003800020002"}, 8)
	r.knows(free5gcFSEID, eight...)
	r.expect("eight Update PDRs", strings.Join(eight, "")+forth, r.forward[1], r.act[0])
	most := "000901fc" + strings.Repeat("00", 508)
	r.knows(free5gcFSEID, most)
	r.expect("the largest Update PDR", most+forth, r.forward[1], r.act[0])
}

// TestN4LeavesWhatIsNotRepeated: what differs by an octet is the daemon's.
func TestN4LeavesWhatIsNotRepeated(t *testing.T) {
	r := newN4Rig(t)
	far := update(free5gcFAR, 1, 2, "10.200.0.9")
	other := strings.Replace(free5gcPDR, "003800020002", "003800020001", 1)
	leaves := func(what, ies string) {
		t.Helper()
		if got := r.ask(n4Frame("10.4.0.2", r.message(200, ies))); got != nil {
			t.Errorf("%s: answered with %x", what, got)
		}
		r.sessions.Store(n4Place, wordN4Left, 0)
	}
	r.knows(free5gcFSEID, free5gcPDR)
	for n := range len(free5gcPDR) / 2 { // each octet
		b, err := hex.DecodeString(free5gcPDR)
		must(t, err)
		b[n] ^= 1 << (n % 8)
		leaves("another octet", hex.EncodeToString(b)+far)
	}
	for n := range len(free5gcFSEID) / 2 {
		b, err := hex.DecodeString(free5gcFSEID)
		must(t, err)
		b[n] ^= 1 << (n % 8)
		leaves("another F-SEID", hex.EncodeToString(b)+free5gcPDR+far)
	}
	leaves("a second PDR", free5gcPDR+other+far)
	leaves("the same PDR twice", free5gcPDR+free5gcPDR+far)
	leaves("an F-SEID twice", free5gcFSEID+free5gcFSEID+far)
	leaves("an octet more", "000900550038"+free5gcPDR[12:]+"00"+far)
	leaves("no Update FAR", free5gcFSEID+free5gcPDR)
	leaves("usage too", free5gcPDR+far+"004d00080051000400000001")
	leaves("a short Update PDR", "000900020000"+far)
	leaves("an Update PDR that is cut short", free5gcPDR+far+free5gcPDR[:100])
	leaves("F-SEID with both families", "0039001d030000000000000d920a040002"+"fc000004000000000000000000000002"+far)

	r.knows(free5gcFSEID, free5gcPDR, other)
	leaves("the other order", other+free5gcPDR+far)
	leaves("one of two", free5gcPDR+far)
	leaves("the one's end as the other's beginning", free5gcPDR[:8]+other[8:]+other[:8]+free5gcPDR[8:]+far)

	small := "00090006003800020002"
	r.knows(free5gcFSEID, slices.Repeat([]string{small}, 9)...)
	leaves("nine", strings.Repeat(small, 9)+far)
	r.knows(free5gcFSEID, "000901fd"+strings.Repeat("00", 509))
	leaves("513 octets", "000901fd"+strings.Repeat("00", 509)+far)

	r.publish()
	leaves("with no F-SEID known", free5gcFSEID+far)
	leaves("with no PDR known", free5gcPDR+far)
	r.knows(free5gcFSEID, free5gcPDR)
	state := r.state.Get(0)
	state.Key[1]++
	r.state.Put(0, &state)
	leaves("of another key", free5gcPDR+far)
}
