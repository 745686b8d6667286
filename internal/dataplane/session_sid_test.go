package dataplane

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/srv6"
)

// sidFrame is a T-PDU of 128 octets that another UPF sends to a SID.
func sidFrame(sid, src, dst string) []byte {
	return packet.Frame(packet.Ethernet{}, packet.IPv6{Src: addr("fc00:9::9"), Dst: addr(sid)}, ipLayer(src, dst),
		packet.UDP{Sport: 5000, Dport: 80}, packet.Payload{Count: 100})
}

// An anchor's session receives at its slice's SID and at no other slice's, by address and
// by argument, before and after a kill, and after it moved to the other slice. It leaves
// nothing there.
func TestSessionsAtSIDs(t *testing.T) {
	path := filepath.Join(pinParent(t), "culvert")
	sids := map[uint16]netip.Prefix{3: prefix("fc00:3:46::/64"), 4: prefix("fc00:4:46::/64")}
	anchored := func(slice uint32) Session {
		s := plain(5, 7)
		s.Rules[0].QFIs = 1 << 9
		s.Rules[0].AtSID = session.AtSID{Slice: slice, UEs: s.Rules[0].Sources}
		for i := range s.Rules {
			s.Rules[i].Forward.Slice = slice
		}
		return s
	}
	var d *DataPlane
	open := func(s Session) {
		var err error
		d, err = Open(Options{PinPath: path, Limits: sessionLimits})
		must(t, err)
		prepareSessions(t, d)
		for _, sid := range sids {
			must(t, d.SIDs.PutForSessions(sid))
		}
		must(t, d.Sessions.Put(s))
		must(t, d.Sweep())
		resolve(t, d)
	}
	args := func(slice uint16, qfi uint8) string {
		a, err := srv6.ArgsMobSession{QFI: qfi, TEID: 7}.Put(sids[slice].Addr(), 64)
		must(t, err)
		return a.String()
	}
	ue, other := ue4(5).String(), ue4(6).String()
	check := func(what string, here, there uint16) {
		t.Helper()
		before := volumes(t, d, 5)[1]
		at := sids[here].Addr().String()
		wantReason(t, d, what+": by address", sidFrame(at, ue, "192.0.2.1"), "forwarded")
		wantReason(t, d, what+": by argument", sidFrame(args(here, 9), ue, "192.0.2.1"), "forwarded")
		wantReason(t, d, what+": another QFI", sidFrame(args(here, 8), ue, "192.0.2.1"), "no_pdr")
		wantReason(t, d, what+": an argument and another source", sidFrame(args(here, 9), other, "192.0.2.1"), "ue_source")
		wantReason(t, d, what+": from nobody", sidFrame(at, other, "192.0.2.1"), "no_pdr")
		wantReason(t, d, what+": to the UE", sidFrame(at, "192.0.2.1", ue), "no_pdr")
		wantReason(t, d, what+": the other slice", sidFrame(sids[there].Addr().String(), ue, "192.0.2.1"), "other_slice")
		wantReason(t, d, what+": the other slice, by argument", sidFrame(args(there, 9), ue, "192.0.2.1"), "other_slice")
		if now := volumes(t, d, 5)[1]; now.Packets != before.Packets+2 || now.Bytes != before.Bytes+256 {
			t.Errorf("%s: rule 1 counted %v, before %v", what, now, before)
		}
	}
	open(anchored(3))
	wantReason(t, d, "nobody's SID", sidFrame("fc00:3:46::", ue, "192.0.2.1"), "other_slice")
	for slice, sid := range sids {
		d.SIDs.SetSlice(sid, slice, false)
	}
	check("at first", 3, 4)
	must(t, d.Close())
	open(anchored(3))
	check("after a kill", 3, 4)
	must(t, d.Sessions.Put(anchored(4)))
	resolve(t, d)
	check("moved", 4, 3)
	up, down, err := d.SliceCounters(4)
	must(t, err)
	if up != (counter.Counter{Packets: 2, Bytes: 256}) || down != (counter.Counter{}) {
		t.Errorf("slice 4 carried %v up and %v down", up, down)
	}
	must(t, d.Sessions.Drop(5))
	wantReason(t, d, "gone", sidFrame("fc00:4:46::", ue, "192.0.2.1"), "no_pdr")
	checkEmpty(t, d)
	must(t, d.Close())
	must(t, Remove(path))
}
