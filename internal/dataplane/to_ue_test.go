package dataplane

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/packet"
)

// onward is a session whose packets come and go by N9.
func onward(n, up, down uint32) Session {
	return Session{ID: uint64(n), Rules: []Rule{
		{ID: 1, TEID: up, Action: ActionForward, Forward: gnb(n, "10.0.0.8")},
		{ID: 2, Direction: Downlink, TEID: down, Action: ActionForward, Forward: gnb(n, "10.0.0.2"), QFI: 9, Container: ContainerDownlink},
	}}
}

// TestErrorsToUEs: what a UE sent and was too big tells whose it was, and an error
// reaches the UE, by its address or by what its session receives at from N9.
func TestErrorsToUEs(t *testing.T) {
	d := sessionRig(t, Options{})
	for _, c := range []struct {
		name    string
		session Session
		teid    uint32
	}{
		{"by N9", onward(5, 7, 8), 7},
		{"by N9, TEIDs of the SMF's", onward(6, 0xabcdef01, 0xabcdef02), 0xabcdef01},
		{"by its address", plain(9, 10), 10},
	} {
		must(t, d.Sessions.Put(c.session))
		resolve(t, d)
		ue := ue4(uint32(c.session.ID))
		big := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")},
			packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: c.teid},
			packet.IPv4{Src: ue, Dst: addr("192.0.2.1"), Fragment: 0x4000}, packet.Payload{Count: 1500, Proto: 253})
		wantReason(t, d, c.name, big, "too_big")
		p := onePunt(t, d)
		if p.Kind != event.PuntICMP || p.Table != event.SessionTable || p.Session != c.session.ID || p.Rule != 1 || p.L3 != 14+20+8+8 {
			t.Errorf("%s: %+v", c.name, p)
		}
		reply := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.1"), Dst: ue}, packet.ICMP{Type: 3, Code: 4, Rest: p.Info})[14:]
		frame, err := d.frameToUE(p.Session, reply)
		must(t, err)
		wantReason(t, d, c.name+", the answer", frame, "forwarded")
		if got := volumes(t, d, c.session.ID)[2]; got != (counter.Counter{Packets: 1, Bytes: uint64(len(reply))}) {
			t.Errorf("%s: to the UE went %v", c.name, got)
		}
	}
	if frame, err := d.frameToUE(99, netip.MustParseAddr("10.45.0.1").AsSlice()); err != nil || len(frame) != 18 {
		t.Errorf("a session that has gone: %x, %v", frame, err)
	}
	if _, err := d.frameToUE(5, nil); err == nil {
		t.Error("nothing is sent")
	}
}

func onePunt(t *testing.T, d *DataPlane) (punt event.Punt) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	must(t, d.Punts.Read(ctx, func(p event.Punt) { punt = p; stop() }))
	return punt
}

// An End Marker that the daemon gives back goes on by the rule of its TEID, and its session
// is known by the TEID.
func TestEndMarkerGivenBack(t *testing.T) {
	d := sessionRig(t, Options{})
	must(t, d.Sessions.Put(onward(5, 7, 8)))
	must(t, d.Sessions.Put(onward(6, 0xabcdef01, 0xabcdef02)))
	resolve(t, d)
	forwarded := func() uint64 {
		t.Helper()
		all, err := d.Outcomes()
		must(t, err)
		return all[abi.ReasonREASON_FORWARDED].Packets
	}
	for teid, want := range map[uint32]uint64{7: 5, 8: 5, 0xabcdef01: 6, 0xabcdef02: 6, 9: 0} {
		if got := d.Sessions.OfTEID(teid); got != want {
			t.Errorf("TEID %#x is of session %d, want %d", teid, got, want)
		}
		before := forwarded()
		must(t, d.InjectGTPU(gtpu.AppendEndMarker(nil, teid), 0x28, 9))
		if got, want := forwarded()-before, min(want, 1); got != want {
			t.Errorf("TEID %#x: %d End Markers went on, want %d", teid, got, want)
		}
	}
	before := forwarded()
	must(t, d.InjectGTPU(gtpu.AppendEndMarker(nil, 7), 0, 1))
	if got := forwarded() - before; got != 0 {
		t.Error("an End Marker goes round for ever")
	}
}
