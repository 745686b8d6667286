package n4

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/session"
)

var (
	one   = session.MakeSEID(70, 5)
	other = session.MakeSEID(70, 6) // at the same place
	far   = session.MakeSEID(700, 7)
	smf   = netip.MustParseAddr("10.4.0.2")
)

func TestSessionsHaveTheirPlace(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	n.Join(other, 12)
	n.Join(far, 13)
	for seid, want := range map[uint64]bool{one: true, other: false, far: false} {
		if got := n.Has(seid); got != want {
			t.Errorf("%#x has an entry: %t, want %t", seid, got, want)
		}
	}
	n.Clear(other)
	n.Clear(far)
	if n.Arrived(far, 1); !n.Has(one) || n.Entry(one).CpSeid != 11 {
		t.Errorf("the entry: %+v", n.Entry(one))
	}
	n.Clear(one)
	if n.Join(other, 12); !n.Has(other) {
		t.Error("the place is not free again")
	}
}

func TestOpenKeepsTheLockAndTheAnswers(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	n.Lock(one)
	n.NoteAnswer(one, 300, false)
	n.Open(one, 4, Owner{SEID: 11, Addr: smf}, [Rules]abi.N4Rule{{Far: 1, Pdr: 9}})
	e := n.Entry(one)
	if e.Lock == 0 || e.Open != 1 || e.Association != 4 || e.Rule[0].Pdr != 9 || e.Answered[e.Version] != 300|handled || n.Answered(one, 300) {
		t.Errorf("open: %+v", e)
	}
	if n.NoteAnswer(one, 301, true); !n.Answered(one, 301) || n.Answered(one, 300) {
		t.Errorf("accepted: %+v", n.Entry(one))
	}
	n.Unlock(one)
	if n.Close(one); n.IsOpen(one) || n.Entry(one).Lock != 0 {
		t.Errorf("closed: %+v", n.Entry(one))
	}
}

// TestAnswersAreForgotten: an SMF's sequence numbers begin again after 2^24 requests.
func TestAnswersAreForgotten(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	n.NoteAnswer(one, 300, true)
	e := n.Entry(one)
	e.When -= forgotten + 1
	n.t.Sessions.Put(70, &e)
	if n.Answered(one, 300) {
		t.Error("a new request is taken for a repeated one")
	}
	n.NoteAnswer(one, 299, true)
	if n.Answered(one, 300) || !n.Answered(one, 299) {
		t.Errorf("after another answer: %+v", n.Entry(one))
	}
}

// TestRecover: a lock of a daemon that died is void, and what its entry says counts only
// while it was open.
func TestRecover(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	n.Open(one, 4, Owner{SEID: 11, Addr: smf}, [Rules]abi.N4Rule{{Far: 1, Pdr: 9, Action: 2}})
	n.Lock(one)
	n.t.Sessions.Store(70, wordLeft, leftTo|2)
	if e, ok := n.Recover(one, 11); !ok || e.Rule[0].Action != 2 {
		t.Errorf("open: %t, %+v", ok, e)
	}
	if e := n.Entry(one); e.Lock == 0 || e.Open == 0 || e.Left != leftTo|2 {
		t.Errorf("after it: %+v", e)
	}
	if n.Keep(one); n.IsOpen(one) {
		t.Error("kept for the daemon, and yet open")
	}
	if e, ok := n.Recover(one, 11); !ok || e.Rule[0].Action != 2 {
		t.Errorf("kept: %t, %+v", ok, e)
	}
	n.Close(one)
	if _, ok := n.Recover(one, 11); ok {
		t.Error("closed, and yet to be believed")
	}
	if _, ok := n.Recover(session.MakeSEID(71, 1), 12); ok || !n.Has(session.MakeSEID(71, 1)) {
		t.Error("a session without an entry does not get one")
	}
}

// TestArrived: the newest request says that the earlier ones have come, or are lost; also to
// the next daemon.
func TestArrived(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	for _, c := range []struct {
		left     uint64
		sequence uint32
		want     uint64
	}{{0, 7, 0}, {leftTo | 7, 6, leftTo | 7}, {leftTo | 7, 7, 0}, {leftTo, 0, 0}, {leftTo | 7, 8, leftTo | 7}} {
		n.t.Sessions.Store(70, wordLeft, c.left)
		n.Arrived(other, c.sequence) // which has no entry
		n.Recover(one, 11)
		n.Unlock(one)
		if n.Arrived(one, c.sequence); n.Entry(one).Left != c.want {
			t.Errorf("left %#x after %d has come to %#x, want %#x", n.Entry(one).Left, c.sequence, c.left, c.want)
		}
	}
}

func TestStill(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	e := n.Entry(one)
	if !n.Still(one, e) {
		t.Error("nobody was at it")
	}
	n.t.Sessions.Store(70, wordLock, lockedByDataPath)
	if n.Still(one, e) || n.Still(one, n.Entry(one)) {
		t.Error("the data path is at it")
	}
	n.t.Sessions.Store(70, wordLock, 0)
	if n.NoteAnswer(one, 5, false); n.Still(one, e) {
		t.Error("it has changed")
	}
}

func TestDirty(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	first := session.MakeSEID(0, 1)
	n.Join(first, 12)
	n.t.Dirty.Store(0, 0, 1)
	n.t.Dirty.Store(1, 0, 1<<6|1<<9)
	if got := slices.Collect(n.Dirty()); !slices.Equal(got, []uint64{first, one}) {
		t.Errorf("dirty: %#x", got)
	}
	if n.t.Dirty.Load(1, 0) != 1<<6 {
		t.Error("a place without a session stays dirty")
	}
	if !n.Changed(one) || n.Changed(one) || !n.Changed(first) {
		t.Error("one session's change is learned once, and no other's")
	}
}

// TestStart clears what no session has any more, and lets the others be changed.
func TestStart(t *testing.T) {
	n := New(128)
	n.Join(one, 11)
	n.Join(session.MakeSEID(71, 1), 12)
	n.Start(func(seid uint64) bool { return seid == one })
	if !n.Has(one) || n.Has(session.MakeSEID(71, 1)) || n.t.State.Get(0).Open != 1 {
		t.Errorf("state %+v", n.t.State.Get(0))
	}
	err := n.Pause(func() error {
		if n.t.State.Get(0).Open != 0 {
			t.Error("open while something moves")
		}
		return nil
	})
	if err != nil || n.t.State.Get(0).Open != 1 {
		t.Errorf("%v, state %+v", err, n.t.State.Get(0))
	}
}

func TestSetNode(t *testing.T) {
	n := New(128)
	a, b := netip.MustParseAddr("10.4.0.2"), netip.MustParseAddr("fc00::2")
	set := func(peers map[netip.Addr]Peer) {
		t.Helper()
		if err := n.SetNode(Node{Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.1")}, Recovery: 7, Peers: peers}); err != nil {
			t.Fatal(err)
		}
	}
	set(map[netip.Addr]Peer{a: {1, 2}, b: {3, 4}})
	set(map[netip.Addr]Peer{a: {5, 6}})
	if got := n.t.Peers.Get(abi.In6Of(a)); got.Association != 5 || got.Recovery != 6 || n.t.Peers.Len() != 1 {
		t.Errorf("peer %+v of %d", got, n.t.Peers.Len())
	}
	if s := n.t.State.Get(0); s.Recovery != 7 || s.Open != 0 || s.Address[0] != abi.In6Of(netip.MustParseAddr("10.4.0.1")) {
		t.Errorf("state %+v", s)
	}
	if got := []uint32{n.Association(a, 6), n.Association(a, 2), n.Association(b, 4), n.Numbered()}; !slices.Equal(got, []uint32{5, 0, 0, 5}) {
		t.Errorf("numbers %v", got)
	}
	for gnb, entry := range map[string]uint32{"10.0.0.1": 40, "10.0.0.2": 41} {
		if err := n.Learn(1, netip.MustParseAddr(gnb), entry); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Moved(map[uint32]uint32{41: 50}); err != nil {
		t.Fatal(err)
	}
	for gnb, want := range map[string]uint32{"10.0.0.1": 40, "10.0.0.2": 50} {
		if got := n.t.Forwardings.Get(abi.N4ForwardingKey{Template: 1, Remote: abi.In6Of(netip.MustParseAddr(gnb))}); got != want {
			t.Errorf("%s: entry %d, want %d", gnb, got, want)
		}
	}
	if err := n.Unlearn(Way{1, netip.MustParseAddr("10.0.0.2")}); err != nil {
		t.Fatal(err)
	}
	for way, entry := range n.Taught() {
		if way != (Way{1, netip.MustParseAddr("10.0.0.1")}) || entry != 40 {
			t.Errorf("taught %+v: %d", way, entry)
		}
	}
}

// TestRepeat: what is noted of Update PDRs stays until others are, and the key as long as
// the table.
func TestRepeat(t *testing.T) {
	n := New(128)
	n.makeKey()
	n.Join(one, 11)
	n.Lock(one)
	a, b := []byte("Update PDR"), []byte("another one")
	n.Repeat(one, a, b)
	n.Open(one, 4, Owner{SEID: 0xd92, Addr: smf}, [Rules]abi.N4Rule{{Far: 1, Pdr: 9}})
	fseid := []byte{0, 57, 0, 13, 2, 0, 0, 0, 0, 0, 0, 0x0d, 0x92, 10, 4, 0, 2}
	e := n.Entry(one)
	if e.CpSeid != 0xd92 || e.Fseid == 0 || e.Fseid != n.Hash(fseid) || e.Pdrs == 0 || e.Pdrs != n.Hash(a, b) || e.Open != 1 || e.Lock == 0 {
		t.Errorf("open: %+v", e)
	}
	if six := (Owner{SEID: 1, Addr: netip.MustParseAddr("fc00:4::2")}).fseid(); len(six) != 4+1+8+16 || six[3] != 25 || six[4] != 1 {
		t.Errorf("F-SEID with IPv6: %x", six)
	}
	if err := n.SetNode(Node{Recovery: 9, Addresses: []netip.Addr{smf, smf, smf, smf, smf}}); err != nil {
		t.Fatal(err)
	}
	if n.makeKey(); n.Hash(fseid) != e.Fseid {
		t.Error("another key")
	}
	for name, ies := range map[string][][]byte{
		"of nothing": nil, "of nine": slices.Repeat([][]byte{a}, 9), "of 513 octets": {make([]byte, 513)},
	} {
		if got := n.Hash(ies...); got != 0 {
			t.Errorf("%s: %#x", name, got)
		}
	}
	if other := New(128); other.Hash(a) == n.Hash(a) || n.Hash(a, b) == n.Hash(b, a) {
		t.Error("another key, or another order, and the same hash")
	}
	if n.Repeat(one); n.Entry(one).Pdrs != 0 || n.Entry(one).Fseid != e.Fseid {
		t.Errorf("nothing is known: %+v", n.Entry(one))
	}
}
