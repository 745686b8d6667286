package dataplane

import (
	"path/filepath"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// idleUE is a data path with one UE, whose rule 2 buffers.
type idleUE struct {
	t     *testing.T
	d     *DataPlane
	s     Session
	frame []byte // to the UE
	entry uint32
}

func newIdleUE(t *testing.T) *idleUE {
	needRoot(t)
	u := &idleUE{t: t, d: sessionRig(t, Options{}), s: plain(1, 0), frame: downlinkFrame("192.0.2.9", "10.45.0.1", 53)}
	u.s.Rules = u.s.Rules[1:]
	u.put(ActionForward) // so that its next hop is ready
	resolve(t, u.d)
	u.put(ActionBuffer)
	u.entry = u.d.Sessions.EntryAt(1, 2)
	return u
}

func (u *idleUE) put(a Action) {
	u.t.Helper()
	u.s.Rules[0].Action = a
	must(u.t, u.d.Sessions.Put(u.s))
}

// goes sends a packet, which is forwarded or handed up.
func (u *idleUE) goes(what string, forwarded bool) {
	u.t.Helper()
	verdict, _, err := u.d.Frames.Test(u.frame, 1)
	must(u.t, err)
	if want := map[bool]uint32{true: xdp.VerdictRedirect, false: xdp.VerdictDrop}[forwarded]; verdict != want {
		u.t.Errorf("%s: %s, want %s", what, xdp.VerdictName(verdict), xdp.VerdictName(want))
	}
}

func (u *idleUE) held() uint32 { return u.d.sessionTables.Refused.LoadHalf(u.entry, 2, 1) }

// TestNothingOvertakes has packets on their way up at each point of an activation: none that
// comes later is forwarded before the daemon is done with all of them.
func TestNothingOvertakes(t *testing.T) {
	u := newIdleUE(t)
	u.goes("idle", false)
	u.put(ActionForward)
	if u.d.Sessions.Turns.Open(1, 2, false) {
		t.Error("open with a packet on its way up")
	}
	u.goes("while the first is on its way up", false)
	u.d.Sessions.Turns.Taken(u.entry)
	u.goes("while the second is on its way up", false)
	u.d.Sessions.Turns.Taken(u.entry)
	if u.put(ActionForward); u.d.Sessions.Turns.Open(1, 2, false) {
		t.Error("open with the third packet on its way up")
	}
	u.d.Sessions.Turns.Taken(u.entry)
	if !u.d.Sessions.Turns.Open(1, 2, false) {
		t.Error("not open with nothing on its way up")
	}
	u.goes("open", true)
	if got := u.held(); got != heldOpen {
		t.Errorf("held %#x, want none", got)
	}
	u.put(ActionBuffer)
	u.goes("idle again", false)
	if got := u.held(); got != 1 {
		t.Errorf("held %#x, want 1", got)
	}
}

// TestActivationBetween has a packet decide on another CPU to be handed up before the rule
// changes, and get into the ring afterwards.
func TestActivationBetween(t *testing.T) {
	u := newIdleUE(t)
	u.d.sessionTables.Refused.StoreHalf(u.entry, 2, 1, 1) // counted, and not in the ring yet
	u.put(ActionForward)
	u.goes("behind it", false)
	u.d.Sessions.Turns.Taken(u.entry)
	u.d.Sessions.Turns.Taken(u.entry)
	u.put(ActionForward)
	u.goes("once both are done with", true)

	// One that has read that the rule buffers when it opens takes the way that it has now.
	u.put(ActionBuffer)
	u.put(ActionHold)
	u.d.sessionTables.Refused.StoreHalf(u.entry, 2, 1, heldOpen)
	u.goes("just opened", true)
}

// TestShutRule drops what comes while what was handed up goes on: who sends faster than the
// daemon does not keep it from an end.
func TestShutRule(t *testing.T) {
	u := newIdleUE(t)
	u.goes("idle", false)
	u.put(ActionForward)
	u.d.Sessions.Turns.Shut(1, 2)
	wantReason(t, u.d, "shut", u.frame, "buffer_full")
	if got := u.held(); got != 1 {
		t.Errorf("held %#x, want 1", got)
	}
	before := volumes(t, u.d, 1)[2].Packets
	must(t, u.d.Frames.InjectKept(u.frame, 1))
	if got := volumes(t, u.d, 1)[2].Packets; got != before+1 {
		t.Errorf("%d kept packets went on, want 1", got-before)
	}
	u.d.Sessions.Turns.Taken(u.entry)
	if !u.d.Sessions.Turns.Open(1, 2, false) {
		t.Error("not open although nothing is on its way up")
	}
	u.goes("open", true)

	u.put(ActionBuffer)
	u.goes("idle", false)
	u.put(ActionForward)
	if !u.d.Sessions.Turns.Open(1, 2, true) {
		t.Error("not open by force")
	}
	u.d.Sessions.Turns.Taken(u.entry) // late
	u.goes("open by force", true)
	if got := u.held(); got != heldOpen {
		t.Errorf("held %#x, want none", got)
	}
}

// TestFullRingIsNotHeld: what finds no room in the ring is not waited for.
func TestFullRingIsNotHeld(t *testing.T) {
	u := newIdleUE(t)
	large := append(u.frame, make([]byte, 2100-len(u.frame))...) // as a full ring: it is not handed up
	if _, _, err := u.d.Frames.Test(large, 1); err != nil {
		t.Fatal(err)
	}
	if got := u.held(); got != 0 {
		t.Errorf("held %#x, want none", got)
	}
}

// TestHeldOverARestart: what is in the ring when the daemon dies is still waited for by the next
// one, and the packet that it had in hand is not.
func TestHeldOverARestart(t *testing.T) {
	needRoot(t)
	path := filepath.Join(pinParent(t), "culvert")
	open := func() *DataPlane {
		d, err := Open(Options{PinPath: path, Limits: sessionLimits})
		must(t, err)
		prepareSessions(t, d)
		return d
	}
	d := open()
	u := &idleUE{t: t, d: d, s: plain(1, 0), frame: downlinkFrame("192.0.2.9", "10.45.0.1", 53)}
	u.s.Rules = u.s.Rules[1:]
	u.put(ActionForward)
	resolve(t, d)
	u.put(ActionBuffer)
	u.entry = d.Sessions.EntryAt(1, 2)
	u.goes("idle", false)
	u.goes("idle", false)
	d.Sessions.Turns.Taking(u.entry) // and then it dies
	must(t, d.Close())
	d = open()
	defer func() { must(t, d.Close()); must(t, Remove(path)) }()
	u.d = d
	u.put(ActionForward)
	must(t, d.Sweep())
	if u.entry != d.Sessions.EntryAt(1, 2) {
		t.Fatal("the rule is elsewhere")
	}
	if got := u.held(); got != 1 {
		t.Errorf("held %#x, want 1", got)
	}
	u.goes("behind what an earlier daemon left", false)
	d.Sessions.Turns.Taken(u.entry)
	d.Sessions.Turns.Taken(u.entry)
	if !d.Sessions.Turns.Open(1, 2, false) {
		t.Error("not open")
	}
	u.goes("open", true)
}

// TestN4WaitsForWhatIsHeld: an activation that the data path answers does not let the rule
// forward while packets are on their way up.
func TestN4WaitsForWhatIsHeld(t *testing.T) {
	r := newN4Rig(t)
	const far = 1
	refused := r.d.sessionTables.Refused
	r.expect("idle", update(open5gsIdle, far, 0, ""), r.forward[0], r.act[1])
	refused.StoreHalf(r.rule, 2, 1, 2)
	holds := r.act[0]&^(0xff<<32) | uint64(abi.PdrActionPDR_BUFFER)<<32
	r.expect("active at the other gNB", update(open5gsForward, far, 2, "10.200.0.9"), r.forward[1], holds)
	r.d.Sessions.Turns.Taken(r.rule)
	r.d.Sessions.Turns.Taken(r.rule)
	if !r.d.Sessions.Turns.Open(5, 2, false) {
		t.Error("not open")
	}
	if got := r.d.sessionTables.PDR.Load(r.rule, 3); got != r.act[0] {
		t.Errorf("the rule says %#x, want %#x", got, r.act[0])
	}
	r.expect("idle again", update(open5gsIdle, far, 0, ""), r.forward[1], r.act[1])
	if got := refused.LoadHalf(r.rule, 2, 1); got != 0 {
		t.Errorf("held %#x, want 0", got)
	}
}
