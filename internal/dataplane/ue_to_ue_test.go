package dataplane

import (
	"fmt"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/packet"
)

// grouped is a session of which a UE reaches those of a network instance, or none.
func grouped(n, teid uint32, way session.UEToUE, instance string) Session {
	s := plain(n, teid)
	group := session.GroupOf(way, 0, instance)
	s.Rules[0].Forward.Group, s.Rules[1].Group = group, group
	return s
}

// A UE reaches another one while both are of one group: as their sessions come, change and go.
// Both count.
func TestUEToUEFollowsSessions(t *testing.T) {
	d := sessionRig(t, Options{})
	const route = session.UEToUERoute
	must(t, d.Sessions.Put(grouped(5, 7, route, "internet")))
	from, to := ue4(5).String(), ue4(21).String()
	frame := uplinkFrame(7, from, to, 80)
	wantReason(t, d, "the other session is not there", frame, "no_pdr")
	must(t, d.Sessions.Put(grouped(21, 8, route, "internet")))
	resolve(t, d)
	wantReason(t, d, "both are there", frame, "forwarded")
	want := counter.Counter{Packets: 1, Bytes: 128}
	if up, down := volumes(t, d, 5)[1], volumes(t, d, 21)[2]; up != want || down != want {
		t.Errorf("counted %v and %v, want %v each", up, down, want)
	}
	idle := grouped(21, 8, route, "internet")
	idle.Rules[1].Action, idle.Rules[1].Forward = ActionBuffer, Forwarding{}
	for _, tt := range []struct {
		what string
		put  Session
		want string
	}{
		{"the other is idle", idle, "slow_path"},
		{"the other is of another network instance", grouped(21, 8, route, "ims"), "other_slice"},
		{"the other's packets take N6", grouped(21, 8, session.UEToUEN6, "internet"), "other_slice"},
		{"the other reaches nobody", plain(21, 8), "other_slice"},
		{"both again", grouped(21, 8, route, "internet"), "forwarded"},
		{"the UE reaches nobody", plain(5, 7), "ue_to_ue"},
		{"and again", grouped(5, 7, route, "internet"), "forwarded"},
	} {
		must(t, d.Sessions.Put(tt.put))
		wantReason(t, d, tt.what, frame, tt.want)
		if tt.want == "slow_path" { // as a daemon would, else the session hands up what comes later, too
			d.Sessions.Turns.Taken(d.Sessions.EntryAt(21, 2))
		}
	}
	_, err := deleteSession(d, 21)
	must(t, err)
	wantReason(t, d, "the other session has ended", frame, "no_pdr")
	must(t, d.Sessions.Put(plain(21, 9)))
	resolve(t, d)
	wantReason(t, d, "another one has its address", frame, "other_slice")
}

// A packet that was kept for an idle UE goes through both sessions when it is sent in again,
// and both count it then.
func TestUEToUEKeepsForIdleUEs(t *testing.T) {
	needRoot(t)
	d := sessionRig(t, Options{})
	idle := grouped(21, 8, session.UEToUERoute, "internet")
	idle.Rules[1].Action = ActionHold
	must(t, d.Sessions.Put(grouped(5, 7, session.UEToUERoute, "internet")))
	must(t, d.Sessions.Put(idle))
	resolve(t, d)
	frame := uplinkFrame(7, ue4(5).String(), ue4(21).String(), 80)
	wantReason(t, d, "while the UE is idle", frame, "slow_path")
	if up, down := volumes(t, d, 5)[1], volumes(t, d, 21)[2]; up.Packets+down.Packets != 0 {
		t.Errorf("counted %v and %v before it is sent", up, down)
	}
	must(t, d.Frames.InjectKept(frame, 1))
	want := fmt.Sprint(counter.Counter{Packets: 1, Bytes: 128})
	if up, down := fmt.Sprint(volumes(t, d, 5)[1]), fmt.Sprint(volumes(t, d, 21)[2]); up != want || down != want {
		t.Errorf("counted %v and %v, want %v each", up, down, want)
	}
}

// Behind a NAT packets for private addresses go straight, as they are, or not at all.
func TestUEToUEBehindNAT(t *testing.T) {
	d := natRig(t, Options{})
	private := gpdu(7, natLayers("udp", natLook{ue4(5).String(), ue4(21).String(), 4711, 53}, 64)...)
	wantReason(t, d, "drop", private, "ue_to_ue")
	for _, s := range []Session{grouped(5, 7, session.UEToUERoute, "a"), grouped(21, 8, session.UEToUERoute, "a")} {
		must(t, d.Sessions.Put(s))
	}
	out, why := through(t, d, private)
	if out == nil {
		t.Fatal("route:", why)
	}
	if src, dst := string(out[len(out)-61+12:len(out)-61+16]), string(out[len(out)-61+16:len(out)-61+20]); src != string(ue4(5).AsSlice()) || dst != string(ue4(21).AsSlice()) {
		t.Errorf("route: arrives from %x at %x", src, dst)
	}
	for _, s := range []Session{grouped(5, 7, session.UEToUEN6, "a"), grouped(21, 8, session.UEToUEN6, "a")} {
		must(t, d.Sessions.Put(s))
	}
	wantReason(t, d, "n6", private, "ue_to_ue")
	wantReason(t, d, "n6, to the Internet", gpdu(7, natLayers("udp", natLook{ue4(5).String(), natHost, 4711, 53}, 64)...), "forwarded")
	wantReason(t, d, "n6, back", packet.Frame(append([]packet.Layer{packet.Ethernet{}}, natLayers("udp", natLook{ue4(5).String(), ue4(21).String(), 4711, 53}, 62)...)...), "nat_behind")
}
