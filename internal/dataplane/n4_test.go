package dataplane

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
)

// What Open5GS's SMF sends (internal/smf/replay/captures/open5gs.pcap). Tests change SEID,
// sequence number, FAR ID and F-TEID.
const (
	open5gsForward = "0a0037006c000400000001002c00020200000b0025002a0001000016000908696e7465726e65740054000a0100000000010ac8000200a000010b"
	open5gsIdle    = "0a0013006c000400000001002c00020c000058000101"
	// A handover asks for an End Marker before the interface type.
	open5gsMarker = "0a003c006c000400000001002c00020200000b002a002a0001000016000908696e7465726e65740054000a0100000000010ac80002003100010200a000010b"
)

// n4Rig is a UPF whose data path answers PFCP for one session of Open5GS's shape.
type n4Rig struct {
	t        testing.TB
	d        *DataPlane
	loaded   *ebpf.Program // culvert_n4
	program  *xdp.Program
	sessions *table.Array[abi.N4Session]
	state    *table.Array[abi.N4State]
	rule     uint32    // of the downlink
	forward  [2]uint64 // words out of pdr: to the first gNB, to the second
	act      [2]uint64 // words of action: forward, buffer
	sequence uint32
}

const (
	n4Place  = 5
	n4SEID   = 77<<22 | n4Place
	n4CPSEID = 0xd92
)

type n4Tables struct {
	Sessions *table.Array[abi.N4Session] `map:"n4_session"`
	State    *table.Array[abi.N4State]   `map:"n4_state"`
}

// mapped lets a test write the tables of PFCP.
func mapped(sessions uint32) func(*ebpf.CollectionSpec) {
	return func(spec *ebpf.CollectionSpec) {
		for name, n := range map[string]uint32{abi.MapN4Session: sessions, abi.MapN4Dirty: sessions/64 + 1, abi.MapN4Forwarding: 16} {
			spec.Maps[name].MaxEntries = n
		}
	}
}

func newN4Rig(t testing.TB) *n4Rig {
	t.Helper()
	d := sessionRig(t, Options{edit: mapped(64)})
	programs, err := d.loadLater(abi.ProgCulvertN4)
	must(t, err)
	t.Cleanup(func() { programs[abi.ProgCulvertN4].Close() })
	var tables n4Tables
	must(t, table.Open(&tables, d.maps))
	t.Cleanup(func() { must(t, table.Close(&tables)) })
	must(t, d.Ports.Set(1, port.Port{Roles: port.Roles(abi.PortFlagsPORT_N4)}))
	must(t, d.maps[abi.MapNextProgram].Put(uint32(abi.ProgramPROGRAM_N4), programs[abi.ProgCulvertN4]))
	r := &n4Rig{t: t, d: d, loaded: programs[abi.ProgCulvertN4], program: xdp.New(programs[abi.ProgCulvertN4]), sessions: tables.Sessions, state: tables.State, sequence: 100}

	base, _, _ := d.limits.PDRRanges()
	r.rule = base + 5
	s := plain(5, 7)
	put := func(action Action, gnb netip.Addr, teid uint32) (out, act uint64) {
		s.Rules = slices.Clone(s.Rules)
		s.Rules[1].Action = action
		s.Rules[1].Forward.Remote, s.Rules[1].Forward.TEID = gnb, teid
		must(t, d.Sessions.Put(s))
		return d.sessionTables.PDR.Load(r.rule, 2), d.sessionTables.PDR.Load(r.rule, 3)
	}
	r.forward[1], _ = put(ActionForward, addr("10.200.0.9"), 2)
	_, r.act[1] = put(ActionBuffer, addr("10.200.0.9"), 2)
	r.forward[0], r.act[0] = put(ActionForward, addr("10.200.0.2"), 1)
	for i, gnb := range []string{"10.200.0.2", "10.200.0.9"} {
		key := abi.N4ForwardingKey{Template: 3, Remote: abi.In6Of(addr(gnb))}
		must(t, d.maps[abi.MapN4Forwarding].Put(&key, uint32(r.forward[i]>>32)))
	}
	r.state.Put(0, &abi.N4State{Alive: r.now(), Recovery: 0xe0000001, Open: 1, Key: [2]uint64{1, 2}, Address: [4]abi.In6{abi.In6Of(addr("10.4.0.1")), abi.In6Of(addr("fc00:4::1"))}})
	for _, smf := range []string{"10.4.0.2", "fc00:4::2"} {
		must(t, d.maps[abi.MapN4Peer].Put(abi.In6Of(addr(smf)), &abi.N4Peer{Association: 9, Recovery: 0xd0000002}))
	}
	r.publish()
	return r
}

func (r *n4Rig) now() uint64 {
	now, err := table.Monotonic()
	must(r.t, err)
	return now
}

// time is when a session's answers are given.
func (r *n4Rig) time() uint16 { return uint16(r.now() >> 32) }

// instanceHash is n4_hash of bpf/n4/read.h.
func instanceHash(text string) uint32 {
	h := uint32(0x811c9dc5)
	for _, c := range []byte(text) {
		h = (h ^ uint32(c)) * 0x01000193
	}
	return h
}

// publish makes the session what it was at the beginning.
func (r *n4Rig) publish() {
	s := abi.N4Session{Seid: n4SEID, CpSeid: n4CPSEID, Association: 9, Open: 1}
	s.Rule[2] = abi.N4Rule{
		Far: 1, Pdr: r.rule, Forward: r.act[0], Buffer: r.act[1], Instance: instanceHash("internet"), Template: 3,
		Destination: 0, Type: 0x0b, Forwards: 2, Buffers: 0x0c, Action: 2, Bar: 1, Leads: 1,
	}
	r.sessions.Put(n4Place, &s)
	r.d.sessionTables.PDR.Store(r.rule, 2, r.forward[0])
	r.d.sessionTables.PDR.Store(r.rule, 3, r.act[0])
}

// message is a Session Modification Request.
func (r *n4Rig) message(sequence uint32, ies string) []byte {
	body, err := hex.DecodeString(ies)
	must(r.t, err)
	b := []byte{0x21, 52}
	b = binary.BigEndian.AppendUint16(b, uint16(12+len(body)))
	b = binary.BigEndian.AppendUint64(b, n4SEID)
	return append(binary.BigEndian.AppendUint32(b, sequence<<8), body...)
}

// update is an Update FAR, by its FAR's F-TEID.
func update(ies string, far, teid uint32, gnb string) string {
	b, _ := hex.DecodeString("00" + ies)
	binary.BigEndian.PutUint32(b[8:], far)
	if i := slices.Index(b, 0x54); teid != 0 && i > 0 {
		binary.BigEndian.PutUint32(b[i+5:], teid)
		copy(b[i+9:], addr(gnb).AsSlice())
	}
	return hex.EncodeToString(b)
}

// frame is a datagram to N4.
func n4Frame(from string, pfcp []byte) []byte {
	if addr(from).Is6() {
		return packet.Frame(packet.Ethernet{Dst: packet.Hex(hostA), Src: packet.Hex(hostB)}, packet.IPv6{Src: addr(from), Dst: addr("fc00:4::1")},
			packet.UDP{Sport: 8805, Dport: 8805}, packet.Payload{Data: pfcp})
	}
	return packet.Frame(packet.Ethernet{Dst: packet.Hex(hostA), Src: packet.Hex(hostB)}, packet.IPv4{Src: addr(from), Dst: addr("10.4.0.1")},
		packet.UDP{Sport: 8805, Dport: 8805}, packet.Payload{Data: pfcp})
}

// ask runs culvert_n4 on a request, and returns the PFCP answer; nil: it is the daemon's,
// and nothing of the frame and the tables has changed.
func (r *n4Rig) ask(frame []byte) []byte {
	r.t.Helper()
	session, out, act := r.sessions.Get(n4Place), r.d.sessionTables.PDR.Load(r.rule, 2), r.d.sessionTables.PDR.Load(r.rule, 3)
	verdict, got, err := r.program.Test(frame, 1)
	must(r.t, err)
	if verdict == xdp.VerdictPass {
		now := r.sessions.Get(n4Place)
		now.Left = session.Left
		if !slices.Equal(got, frame) || now != session || r.d.sessionTables.PDR.Load(r.rule, 2) != out || r.d.sessionTables.PDR.Load(r.rule, 3) != act {
			r.t.Errorf("left to the daemon after a change")
		}
		return nil
	}
	if verdict != xdp.VerdictRedirect {
		r.t.Fatalf("verdict %s", xdp.VerdictName(verdict))
	}
	l4 := 34
	if frame[12] == 0x86 {
		l4 = 54
	}
	answer := slices.Clone(got[l4+8:])
	want := n4Frame("10.4.0.2", answer) // with the ends turned round below
	if l4 == 54 {
		want = n4Frame("fc00:4::2", answer)
	}
	turn(want, l4)
	if l4 == 34 { // fields that are the sender's own: identification, DF, TTL
		copy(want[18:22], got[18:22])
		want[22] = got[22]
		copy(want[24:26], got[24:26])
	} else {
		want[21] = got[21]
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("answer\n%x, want\n%x", got, want)
	}
	return answer
}

// turn swaps the ends of a frame.
func turn(f []byte, l4 int) {
	swap := func(a, b, n int) {
		for i := range n {
			f[a+i], f[b+i] = f[b+i], f[a+i]
		}
	}
	swap(0, 6, 6)
	if l4 == 34 {
		swap(26, 30, 4)
	} else {
		swap(22, 38, 16)
	}
}

// accepted is what the daemon answers.
func accepted(sequence uint32) []byte {
	b := []byte{0x21, 53, 0, 17}
	b = binary.BigEndian.AppendUint64(b, n4CPSEID)
	b = binary.BigEndian.AppendUint32(b, sequence<<8)
	return append(b, 0, 19, 0, 1, 1)
}

// expect demands that a request is answered, and what the rule says then.
func (r *n4Rig) expect(what, ies string, out, act uint64) {
	r.t.Helper()
	r.sequence++
	if got := r.ask(n4Frame("10.4.0.2", r.message(r.sequence, ies))); !slices.Equal(got, accepted(r.sequence)) {
		r.t.Errorf("%s: answer %x, want %x", what, got, accepted(r.sequence))
	}
	if o, a := r.d.sessionTables.PDR.Load(r.rule, 2), r.d.sessionTables.PDR.Load(r.rule, 3); o != out || a != act {
		r.t.Errorf("%s: the rule says %#x %#x, want %#x %#x", what, o, a, out, act)
	}
}

// TestN4Changes: handover, idle, active, as Open5GS asks for them.
func TestN4Changes(t *testing.T) {
	r := newN4Rig(t)
	const far = 1
	r.expect("handover", update(open5gsForward, far, 2, "10.200.0.9"), r.forward[1], r.act[0])
	r.expect("handover back, with an End Marker", update(open5gsMarker, far, 1, "10.200.0.2"), r.forward[0], r.act[0])
	r.expect("idle", update(open5gsIdle, far, 0, ""), r.forward[0], r.act[1])
	r.expect("idle again", update(open5gsIdle, far, 0, ""), r.forward[0], r.act[1])
	r.expect("active at the other gNB", update(open5gsForward, far, 2, "10.200.0.9"), r.forward[1], r.act[0])
	if s := r.sessions.Get(n4Place); s.Version != 5 || s.Lock != 0 || s.Rule[2].Action != 2 {
		t.Errorf("the session: %+v", s)
	}
	// a repeated request gets its answer, and nothing else
	r.sequence -= 3
	r.expect("idle, repeated", update(open5gsIdle, far, 0, ""), r.forward[1], r.act[0])
	// A message priority comes back.
	urgent := r.message(800, update(open5gsIdle, far, 0, ""))
	urgent[0], urgent[15] = 0x23, 0x7f
	want := accepted(800)
	want[0], want[15] = 0x23, 0x70
	if got := r.ask(n4Frame("10.4.0.2", urgent)); !slices.Equal(got, want) {
		t.Errorf("with a priority: %x, want %x", got, want)
	}
	// IPv6
	message := r.message(900, update(open5gsIdle, far, 0, ""))
	if got := r.ask(n4Frame("fc00:4::2", message)); !slices.Equal(got, accepted(900)) {
		t.Errorf("over IPv6: %x", got)
	}
}

// TestN4Leaves: what is not exactly so is the daemon's, untouched.
func TestN4Leaves(t *testing.T) {
	r := newN4Rig(t)
	forward := update(open5gsForward, 1, 2, "10.200.0.9")
	good := r.message(200, forward)
	edit := func(f func(b []byte)) []byte {
		b := slices.Clone(good)
		f(b)
		return b
	}
	for name, pfcp := range map[string][]byte{
		"another SEID at this place": edit(func(b []byte) { b[8]++ }),
		"no session":                 edit(func(b []byte) { b[11] += 1 }),
		"another version":            edit(func(b []byte) { b[0] = 0x41 }),
		"two messages":               edit(func(b []byte) { b[0] = 0x25 }),
		"no SEID":                    edit(func(b []byte) { b[0] = 0x20 }),
		"a deletion":                 edit(func(b []byte) { b[1] = 54 }),
		"too long":                   edit(func(b []byte) { b[3]++ }),
		"too short":                  edit(func(b []byte) { b[3]-- }),
		"an IE too long":             edit(func(b []byte) { b[19]++ }),
		"an IE inside too long":      edit(func(b []byte) { b[35] += 30 }),
		"FAR 2":                      r.message(200, update(open5gsForward, 2, 2, "10.200.0.9")),
		"a gNB that is new":          r.message(200, update(open5gsForward, 1, 2, "10.200.0.10")),
		"TEID 0":                     r.message(200, update(open5gsForward, 1, 0, "")[:len(forward)-34]+"00000000"+forward[len(forward)-26:]),
		"twice the same FAR":         r.message(200, forward+forward),
		"a PDR too":                  r.message(200, forward+"0009000600380002"+"0001"),
		"nothing":                    r.message(200, ""),
		"another BAR":                r.message(200, "000a0013006c000400000001002c00020c000058000102"),
		"drop":                       r.message(200, "000a000e006c000400000001002c00020100"),
		"buffer without a report":    r.message(200, "000a000e006c000400000001002c00020400"),
		"another network instance":   edit(func(b []byte) { b[54]++ }),
		"another interface type":     edit(func(b []byte) { b[len(b)-1]++ }),
	} {
		if got := r.ask(n4Frame("10.4.0.2", pfcp)); got != nil {
			t.Errorf("%s: answered with %x", name, got)
		}
	}
	for name, frame := range map[string][]byte{
		"a stranger":       n4Frame("10.4.0.3", good),
		"a wrong checksum": func() []byte { f := n4Frame("10.4.0.2", good); f[41] ^= 1; return f }(),
		"another port":     func() []byte { f := n4Frame("10.4.0.2", good); f[33]++; return f }(),
		"a fragment":       func() []byte { f := n4Frame("10.4.0.2", good); f[20] |= 0x20; return f }(),
		"cut short":        n4Frame("10.4.0.2", good)[:90],
	} {
		if got := r.ask(frame); got != nil {
			t.Errorf("%s: answered with %x", name, got)
		}
	}
	for name, change := range map[string]func(s *abi.N4Session){
		"of another SMF":                          func(s *abi.N4Session) { s.Association = 8 },
		"locked by the daemon":                    func(s *abi.N4Session) { s.Lock = 1 << 32 },
		"that is not there":                       func(s *abi.N4Session) { s.Seid = 0 },
		"of the daemon alone":                     func(s *abi.N4Session) { s.Open = 0 },
		"never seen forwarding":                   func(s *abi.N4Session) { s.Rule[2].Forward = 0 },
		"an older sequence":                       func(s *abi.N4Session) { s.Answered[0], s.When = 201|1<<31, r.time() },
		"with the daemon's answer":                func(s *abi.N4Session) { s.Answered[0], s.When = 200|1<<30, r.time() },
		"with a request on its way to the daemon": func(s *abi.N4Session) { s.Left = n4LeftTo | 199 },
	} {
		r.publish()
		s := r.sessions.Get(n4Place)
		change(&s)
		r.sessions.Put(n4Place, &s)
		if got := r.ask(n4Frame("10.4.0.2", good)); got != nil {
			t.Errorf("a session %s: answered with %x", name, got)
		}
	}
	r.publish()
	r.d.sessionTables.PDR.Store(r.rule, 3, r.act[0]^1) // a closed gate
	if got := r.ask(n4Frame("10.4.0.2", good)); got != nil {
		t.Errorf("a rule that does something else: answered with %x", got)
	}
	r.publish()
	if got := r.ask(n4Frame("10.4.0.2", good)); !slices.Equal(got, accepted(200)) {
		t.Errorf("the request that all these are made of: %x", got)
	}
}

// TestN4ForgetsAnswers: an SMF's sequence numbers begin again after 2^24 requests.
func TestN4ForgetsAnswers(t *testing.T) {
	r := newN4Rig(t)
	for name, c := range map[string]struct {
		age uint16 // 4.3 s
		out uint64
	}{
		"repeated by the SMF": {7, r.forward[0]},
		"a new request":       {9, r.forward[1]},
		"after a day":         {20000, r.forward[1]},
	} {
		r.publish()
		s := r.sessions.Get(n4Place)
		s.Answered, s.Version, s.When = [8]uint32{200 | 1<<31, 199 | 1<<31}, 8, r.time()-c.age
		r.sessions.Put(n4Place, &s)
		r.sequence = 199
		r.expect(name, update(open5gsForward, 1, 2, "10.200.0.9"), c.out, r.act[0])
		s = r.sessions.Get(n4Place)
		if got := slices.Contains(s.Answered[:], 199|1<<31); got != (c.out == r.forward[0]) {
			t.Errorf("%s: an earlier answer is known: %t", name, got)
		}
	}
}

// TestN4KeepsTheOrder: what is left to the daemon is answered before what comes later.
func TestN4KeepsTheOrder(t *testing.T) {
	r := newN4Rig(t)
	forward := update(open5gsForward, 1, 2, "10.200.0.9")
	left := func() uint64 { return r.sessions.Get(n4Place).Left }
	strange := r.message(200, forward)
	strange[1] = 53 // a response does not wait for an answer
	r.ask(n4Frame("10.4.0.2", strange))
	r.ask(n4Frame("10.4.0.3", r.message(200, "")))
	if left() != 0 {
		t.Errorf("left: %#x after a response, and after a request of a stranger", left())
	}
	fragment := n4Frame("10.4.0.2", r.message(200, forward))
	fragment[20] |= 0x20
	binary.BigEndian.PutUint16(fragment[24:], binary.BigEndian.Uint16(fragment[24:])-0x2000)
	whole := n4Frame("fc00:4::2", r.message(200, forward))
	fragment6 := slices.Concat(whole[:54], []byte{17, 0, 0, 1, 0, 0, 0, 7}, whole[54:]) // the first of more
	fragment6[20] = 44
	binary.BigEndian.PutUint16(fragment6[18:], binary.BigEndian.Uint16(fragment6[18:])+8)
	for i, c := range []struct {
		frame  []byte
		newest uint64
	}{
		{n4Frame("10.4.0.2", r.message(199, "")), 199},
		{fragment, 200},
		{n4Frame("10.4.0.2", r.message(199, forward)), 200},      // repeated
		{n4Frame("10.4.0.2", r.message(0xfffff0, forward)), 200}, // before the numbers began again
		{fragment6, 200},
		{n4Frame("10.4.0.2", r.message(202, forward)), 202},
	} {
		if got := r.ask(c.frame); got != nil || left() != n4LeftTo|c.newest {
			t.Errorf("request %d: answered with %x, left %#x", i, got, left())
		}
	}
	r.sessions.Store(n4Place, wordN4Left, 0) // the daemon has answered
	r.sequence = 300
	r.expect("after the daemon's answer", forward, r.forward[1], r.act[0])
}

// wordN4Left is the word of left in abi.N4Session, n4LeftTo is N4_LEFT_TO.
const (
	wordN4Left = 30
	n4LeftTo   = 1 << 24
)

// TestN4KnowsWhereRulesLead: a rule that the daemon made buffer forwards when the request
// says where to.
func TestN4KnowsWhereRulesLead(t *testing.T) {
	r := newN4Rig(t)
	s := r.sessions.Get(n4Place)
	s.Rule[2].Leads, s.Rule[2].Action = 0, 0x0c
	r.sessions.Put(n4Place, &s)
	r.d.sessionTables.PDR.Store(r.rule, 3, r.act[1])
	const active = "000a000e006c000400000001002c00020200"
	if got := r.ask(n4Frame("10.4.0.2", r.message(200, active))); got != nil {
		t.Errorf("without a place to forward to: answered with %x", got)
	}
	r.sessions.Store(n4Place, wordN4Left, 0)
	idleThere := strings.Replace(update(open5gsForward, 1, 1, "10.200.0.2"), "002c00020200", "002c00020c00", 1)
	if got := r.ask(n4Frame("10.4.0.2", r.message(201, idleThere))); got != nil {
		t.Errorf("idle, with the place that the rule led to before: answered with %x", got)
	}
	r.sessions.Store(n4Place, wordN4Left, 0)
	r.sequence = 300
	r.expect("with one", update(open5gsForward, 1, 2, "10.200.0.9"), r.forward[1], r.act[0])
	r.expect("idle", update(open5gsIdle, 1, 0, ""), r.forward[1], r.act[1])
	r.expect("without one, which is known now", active, r.forward[1], r.act[0])
}

// TestN4Heartbeats are answered for a minute without the daemon, also where a card has padded them
// to the shortest frame of Ethernet.
func TestN4Heartbeats(t *testing.T) {
	r := newN4Rig(t)
	r.heartbeats()
}

func (r *n4Rig) heartbeats() {
	t := r.t
	t.Helper()
	request := func(recovery uint32) []byte {
		b := []byte{0x20, 1, 0, 12, 0, 0, 7, 0, 0, 96, 0, 4}
		return binary.BigEndian.AppendUint32(b, recovery)
	}
	want := []byte{0x20, 2, 0, 12, 0, 0, 7, 0, 0, 96, 0, 4, 0xe0, 0, 0, 1}
	for _, smf := range []string{"10.4.0.2", "fc00:4::2"} {
		for padding := range 4 {
			frame := append(n4Frame(smf, request(0xd0000002)), make([]byte, padding)...)
			if got := r.ask(frame); !slices.Equal(got, want) {
				t.Errorf("%s, %d octets of padding: %x, want %x", smf, padding, got, want)
			}
		}
	}
	for name, frame := range map[string][]byte{
		"the SMF has started again": n4Frame("10.4.0.2", request(0xd0000003)),
		"a stranger":                n4Frame("10.4.0.9", request(0xd0000002)),
		"with a source address":     n4Frame("10.4.0.2", append(request(0xd0000002), 0, 192, 0, 1, 2)),
	} {
		if got := r.ask(frame); got != nil {
			t.Errorf("%s: answered with %x", name, got)
		}
	}
	state := r.state.Get(0)
	state.Alive = r.now() - uint64(61*time.Second)
	r.state.Put(0, &state)
	if got := r.ask(n4Frame("10.4.0.2", request(0xd0000002))); got != nil {
		t.Errorf("the daemon is long gone: answered with %x", got)
	}
	state.Alive, state.Recovery = r.now(), 0
	r.state.Put(0, &state)
	if got := r.ask(n4Frame("10.4.0.2", request(0xd0000002))); got != nil {
		t.Errorf("the daemon has lost its sessions: answered with %x", got)
	}
}

// TestN4ByTheJourney: PFCP that the port's roles let to this host reaches culvert_n4.
func TestN4ByTheJourney(t *testing.T) {
	r := newN4Rig(t)
	must(t, r.d.Steering.PutLocal(single(addr("10.4.0.1"))))
	frame := n4Frame("10.4.0.2", r.message(300, update(open5gsForward, 1, 2, "10.200.0.9")))
	run := func() uint32 {
		verdict, _, err := r.d.Frames.Test(frame, 1)
		must(t, err)
		return verdict
	}
	if v := run(); v != xdp.VerdictRedirect || r.d.sessionTables.PDR.Load(r.rule, 2) != r.forward[1] {
		t.Errorf("verdict %s, the rule says %#x", xdp.VerdictName(v), r.d.sessionTables.PDR.Load(r.rule, 2))
	}
	must(t, r.d.Ports.Set(1, port.Port{Roles: port.Roles(abi.PortFlagsPORT_N3)}))
	r.publish()
	if v := run(); v != xdp.VerdictDrop || r.d.sessionTables.PDR.Load(r.rule, 2) != r.forward[0] {
		t.Errorf("by a port with the role n3: verdict %s", xdp.VerdictName(v))
	}
	must(t, r.d.Ports.Set(1, port.Port{Roles: port.Roles(abi.PortFlagsPORT_N4)}))
	must(t, r.d.maps[abi.MapNextProgram].Delete(uint32(abi.ProgramPROGRAM_N4)))
	if v := run(); v != xdp.VerdictPass {
		t.Errorf("switched off: verdict %s", xdp.VerdictName(v))
	}
	outcomes, err := r.d.Outcomes()
	must(t, err)
	if a, b := outcomes[abi.ReasonREASON_REPLIED].Packets, outcomes[abi.ReasonREASON_PASSED].Packets; a != 1 || b != 1 {
		t.Errorf("%d replied, %d passed, want 1 and 1", a, b)
	}
}

// TestN4BySilentPort: the daemon answers where no frame can leave, and requests of the session
// wait for it.
func TestN4BySilentPort(t *testing.T) {
	r := newN4Rig(t)
	must(t, r.d.Steering.PutLocal(single(addr("10.4.0.1"))))
	must(t, r.d.Ports.Set(1, port.Port{Roles: port.Roles(abi.PortFlagsPORT_N4), Silent: true}))
	frame := n4Frame("10.4.0.2", r.message(300, update(open5gsForward, 1, 2, "10.200.0.9")))
	verdict, out, err := r.d.Frames.Test(frame, 1)
	must(t, err)
	if verdict != xdp.VerdictPass || !bytes.Equal(out, frame) || r.d.sessionTables.PDR.Load(r.rule, 2) != r.forward[0] {
		t.Errorf("verdict %s, %x became %x, the rule says %#x", xdp.VerdictName(verdict), frame, out, r.d.sessionTables.PDR.Load(r.rule, 2))
	}
	if left := r.sessions.Get(n4Place).Left; left != n4LeftTo|300 {
		t.Errorf("the request is not the daemon's: %#x", left)
	}
}

// BenchmarkSignalling is a handover in culvert_n4 alone, by the kernel's own clock, which
// costs about 40 ns itself. Each request is new, and comes by a system call: caches are
// colder than under load.
func BenchmarkSignalling(b *testing.B) {
	for _, smf := range []struct{ name, repeats, far string }{{"open5gs", "", open5gsForward}, {"free5gc", free5gcFSEID + free5gcPDR, free5gcFAR}} {
		b.Run(smf.name, func(b *testing.B) {
			r := newN4Rig(b)
			r.knows(free5gcFSEID, free5gcPDR)
			r.measure(b, smf.repeats+update(smf.far, 1, 2, "10.200.0.9"), smf.repeats+update(smf.far, 1, 1, "10.200.0.2"))
		})
	}
}

// measure sends requests in turn.
func (r *n4Rig) measure(b *testing.B, requests ...string) {
	statistics, err := ebpf.EnableStats(0) // BPF_STATS_RUN_TIME
	must(b, err)
	defer statistics.Close()
	before, err := r.loaded.Stats()
	must(b, err)
	for i := range b.N {
		r.sequence++
		verdict, _, err := r.program.Test(n4Frame("10.4.0.2", r.message(r.sequence, requests[i%len(requests)])), 1)
		must(b, err)
		if verdict != xdp.VerdictRedirect {
			b.Fatalf("request %d: %s", i, xdp.VerdictName(verdict))
		}
	}
	after, err := r.loaded.Stats()
	must(b, err)
	b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(after.RunCount-before.RunCount), "ns/request")
}
