package pfcp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// n4Update and n4Message are struct n4_update and struct n4_message (bpf/n4/read.h).
type n4Update struct {
	FAR, Has, TEID, Instance       uint32
	Remote                         [16]byte
	Action, BAR, Destination, Type uint8
	Flags                          uint8
	Pad                            [3]uint8
}

type n4Message struct {
	SEID                           uint64
	Sequence, At, End, Recovery    uint32
	Type, Updates, Flags, Priority uint8
	Update                         [4]n4Update
	Pad                            [4]byte
	FSEID, PDRs                    uint64 // hashes
}

// Bits of n4Update.Has.
const (
	hasAction      = 2
	hasBAR         = 4
	hasDestination = 16
	hasInstance    = 32
	hasType        = 64
	hasOuter       = 128
)

// n4FAR is what the data path would know of each FAR of a session.
func n4FAR(id uint32) session.FAR {
	return session.FAR{ID: id, Action: session.Forward, BAR: new(uint8(1)), Forwarding: &session.Forwarding{
		Destination: session.Access, NetworkInstance: "internet", InterfaceType: new(session.TypeN3),
		Outer: &session.OuterHeader{Kind: session.OuterGTPU, TEID: 0x77, Addr: netip.MustParseAddr("10.200.0.9")},
	}}
}

// n4Seeds are requests of real SMFs: Open5GS's from testdata, and what free5GC repeats.
var n4Seeds = []string{
	"21340047000000000000023200000400000a0037006c000400000001002c00020200000b0025002a0001000016000908696e7465726e65740054000a0100000000010ac8000200a000010b",
	"2134004c000000000000023200000400000a003c006c000400000001002c00020200000b002a002a0001000016000908696e7465726e65740054000a0100000000010ac80002003100010200a000010b",
	"2134003a0000000000000d9200000900000a0013006c000400000001002c00020c000058000101000a0013006c000400000004002c00020c000058000101",
	"213400820000000000000d9200000c00000a0037006c000400000001002c00020200000b0025002a0001000016000908696e7465726e65740054000a0100000000040ac8000200a000010b000a0037006c000400000004002c00020200000b0025002a0001000016000908696e7465726e65740054000a0100000000040ac8000200a000010b",
	"23340045000000000000023200000470000a0035006c000400000002002c000102000b0024002a00010000160008696e7465726e65740054000a0100000000010ac8000200a000010b",
	"2001000c000007000060000400000001",
	n4Request(n4FSEID + n4PDR + n4Forward5GC),
	n4Request(n4FSEID + n4Forward5GC),
	n4Request(n4FSEID + n4PDR + n4OtherPDR + n4Forward5GC),
}

// n4Mutated is one of the seeds, with a few of its octets changed, moved or repeated.
func n4Mutated(r *rand.Rand) []byte {
	b, _ := hex.DecodeString(n4Seeds[r.IntN(len(n4Seeds))])
	for range r.IntN(4) {
		at := r.IntN(len(b))
		switch r.IntN(7) {
		case 0:
			b[at] = byte(r.Uint32())
		case 1:
			b[at] ^= 1 << r.IntN(8)
		case 2:
			b[at] += byte(r.IntN(3)) - 1
		case 3: // a part twice
			n := min(len(b)-at, 1+r.IntN(60))
			b = append(b[:at:at], append(bytes.Clone(b[at:at+n]), b[at:]...)...)
		case 4: // a part less
			n := min(len(b)-at, 1+r.IntN(20))
			b = append(b[:at:at], b[at+n:]...)
		case 5: // IEs in another order
			if to := r.IntN(len(b)); to > at {
				b[at], b[to] = b[to], b[at]
			}
		case 6: // a length, with the message's
			if at+1 < len(b) {
				binary.BigEndian.PutUint16(b[at:], uint16(r.IntN(80)))
			}
		}
		if len(b) < 12 {
			break
		}
		if r.IntN(8) > 0 {
			binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
		}
	}
	return b
}

// TestDataPathReadsLikeTheDaemon: of what the data path reads in a message that it may
// answer, the daemon reads the same.
func TestDataPathReadsLikeTheDaemon(t *testing.T) {
	reader := n4Build(t, "n4")
	t.Run("mutated", func(t *testing.T) { n4ReadsMutated(t, reader) })
	t.Run("by coverage", func(t *testing.T) { n4ReadsFuzzed(t, reader) })
}

// n4Build is a program of bpf/native/n4.c.
func n4Build(t *testing.T, variant string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), variant)
	if out, err := exec.Command("../../bpf/native/build.sh", variant, path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// n4ReadsMutated compares mutations of what SMFs send.
func n4ReadsMutated(t *testing.T, reader string) {
	r := rand.New(rand.NewPCG(*firstSeed, 13))
	taken, changes := 0, 0
	for left := *messages; left > 0 && !t.Failed(); left -= n4Batch {
		var list [][]byte
		for range min(left, n4Batch) {
			list = append(list, n4Mutated(r))
		}
		for _, m := range n4Compare(t, reader, list) {
			taken++
			changes += int(m.Updates)
		}
	}
	t.Logf("%d of %d messages can be answered in the data path, %d FARs", taken, *messages, changes)
	if changes < *messages/50 {
		t.Errorf("only %d FARs of %d messages are compared", changes, *messages)
	}
}

// n4Compare compares messages, and returns what the data path could answer.
func n4Compare(t *testing.T, reader string, list [][]byte) (answerable []*n4Message) {
	t.Helper()
	for i, m := range n4Read(t, reader, list) {
		if m != nil && n4Agrees(t, list[i], m) {
			answerable = append(answerable, m)
		}
		if t.Failed() {
			t.Fatalf("message %x", list[i])
		}
	}
	return answerable
}

// n4Batch is how many messages one reader gets.
const n4Batch = 50_000

// n4Read is what the data path reads in messages; nil: nothing that it answers.
func n4Read(t *testing.T, reader string, list [][]byte) []*n4Message {
	var in, complaints bytes.Buffer
	for _, b := range list {
		in.Write(binary.NativeEndian.AppendUint16(nil, uint16(len(b))))
		in.Write(b)
	}
	command := exec.Command(reader)
	command.Stdin, command.Stderr = &in, &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaints.Bytes())
	}
	const size = 208
	if len(out) != len(list)*(1+size) {
		t.Fatalf("%d octets for %d messages, want %d each", len(out), len(list), 1+size)
	}
	read := make([]*n4Message, len(list))
	for i := range list {
		one := out[i*(1+size):][:1+size]
		if one[0] == 0 {
			continue
		}
		read[i] = &n4Message{}
		if _, err := binary.Decode(one[1:], binary.NativeEndian, read[i]); err != nil {
			t.Fatal(err)
		}
	}
	return read
}

// n4Agrees compares what was read in a message, and says whether the data path could
// answer it.
func n4Agrees(t *testing.T, b []byte, m *n4Message) bool {
	h, body, rest, err := wire.ReadHeader(b)
	if err != nil || len(rest) > 0 || h.Followed {
		t.Errorf("the daemon refuses the header: %v, %d octets behind", err, len(rest))
		return false
	}
	if h.Type != m.Type || h.Sequence != m.Sequence || h.HasSEID && h.SEID != m.SEID ||
		h.HasPriority != (m.Flags&2 != 0) || h.Priority != m.Priority {
		t.Errorf("header %+v, the data path reads %+v", h, m)
	}
	if h.Type == 1 {
		list := wire.IEs(body)
		first, bad := list.Next()
		if bad != nil || len(list) > 0 || binary.BigEndian.Uint16(first) != ie.RecoveryTimeStamp || binary.BigEndian.Uint32(first[4:]) != m.Recovery {
			t.Errorf("heartbeat: %x, %x; the data path reads %#x", first, body, m.Recovery)
		}
		return true
	}
	updates := m.Update[:m.Updates]
	if !n4Repeats(t, body, m) || !n4CouldPlan(updates) {
		return false
	}
	to := n4Session(t)
	builder := &request.Builder{Features: everything, To: to}
	builder.Modification(body)
	if builder.Err != nil {
		t.Errorf("the daemon refuses: %v", builder.Err)
		return false
	}
	markers := 0
	for i := range updates {
		n4SameFAR(t, &updates[i], to.FAR(updates[i].FAR))
		if updates[i].Flags&2 != 0 {
			markers++
		}
	}
	if markers != len(builder.How.EndMarkers) {
		t.Errorf("%d End Markers, the data path reads %d", len(builder.How.EndMarkers), markers)
	}
	if was := n4Session(t); to.CPSEID != was.CPSEID || to.CPAddr != was.CPAddr || !reflect.DeepEqual(to.PDRs, was.PDRs) {
		t.Errorf("the daemon changes what the data path takes for repeated: %+v, it was %+v", to, was)
	}
	return true
}

// n4CouldPlan says whether plan_all (bpf/n4/change.h) could take the updates, of a
// session with such FARs.
func n4CouldPlan(updates []n4Update) bool {
	seen := map[uint32]bool{}
	for _, u := range updates {
		known := u.FAR >= 1 && u.FAR <= 4 && !seen[u.FAR]
		seen[u.FAR] = true
		if !known || u.Flags&^2 != 0 ||
			u.Has&hasAction != 0 && u.Action != 2 && u.Action != 0x0c ||
			u.Has&hasBAR != 0 && u.BAR != 1 || u.Has&hasDestination != 0 && u.Destination != 0 ||
			u.Has&hasType != 0 && u.Type&0x3f != 0x0b || u.Has&hasInstance != 0 && u.Instance != n4Hash("internet") {
			return false
		}
	}
	return true
}

// n4Hash is n4_hash of bpf/n4/read.h.
func n4Hash(text string) uint32 {
	h := uint32(0x811c9dc5)
	for _, c := range []byte(text) {
		h = (h ^ uint32(c)) * 0x01000193
	}
	return h
}

// n4SameFAR compares an Update FAR with what the daemon made of it.
func n4SameFAR(t *testing.T, u *n4Update, got *session.FAR) {
	t.Helper()
	want := n4FAR(u.FAR)
	if u.Has&hasAction != 0 {
		want.Action = session.Action(u.Action)
	}
	if u.Has&hasOuter != 0 {
		want.Forwarding.Outer = &session.OuterHeader{Kind: session.OuterGTPU, TEID: u.TEID, Addr: netip.AddrFrom16(u.Remote).Unmap()}
	}
	if got.Action != want.Action || *got.BAR != *want.BAR || got.Forwarding.NetworkInstance != want.Forwarding.NetworkInstance ||
		got.Forwarding.Destination != want.Forwarding.Destination || *got.Forwarding.InterfaceType != *want.Forwarding.InterfaceType ||
		*got.Forwarding.Outer != *want.Forwarding.Outer {
		t.Errorf("FAR %d: the daemon reads %+v %+v, the data path %+v", u.FAR, got, got.Forwarding, u)
	}
}
