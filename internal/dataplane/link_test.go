package dataplane

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// lo is a VLAN: packets that have no tag are not of the link.
var lo = Link{Interface: "lo", VLAN: 100}

// frames is an Ethernet session on the link lo.
func frames(n, teid uint32) Session {
	return Session{ID: uint64(n), Rules: []Rule{
		{ID: 1, Ethernet: true, TEID: teid, Action: ActionForward, Forward: Forwarding{Kind: ForwardLink, Link: lo}},
		{ID: 2, Ethernet: true, Direction: Downlink, Link: lo, Action: ActionForward, Forward: gnb(n, "10.0.0.2")},
	}}
}

// fromHost is a frame that a host behind a session sends, toHost the answer.
func fromHost(teid uint32, mac string) []byte {
	return packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")},
		packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: teid},
		packet.Ethernet{Dst: mac6("02:00:00:00:00:99"), Src: mac6(mac)}, packet.Payload{Count: 50})
}

func toHost(mac string) []byte {
	return packet.Frame(packet.Ethernet{Dst: mac6(mac), Src: mac6("02:00:00:00:00:99"), VLAN: []uint16{100}}, packet.Payload{Count: 50})
}

func mac6(text string) packet.Hex {
	var h packet.Hex
	if err := h.UnmarshalText([]byte(strings.ReplaceAll(text, ":", ""))); err != nil {
		panic(err)
	}
	return h
}

func linkRig(t *testing.T) *DataPlane {
	t.Helper()
	d := sessionRig(t, Options{})
	if err := d.Links.Put(lo); err != nil {
		t.Fatal(err)
	}
	for n := range uint32(2) {
		if err := errors.Join(d.Sessions.TakeTEID(0x01000001+n), d.Sessions.Put(frames(1+n, 0x01000001+n))); err != nil {
			t.Fatal(err)
		}
	}
	resolve(t, d)
	return d
}

// passes says how a frame ended, by the session that it counted for.
func passes(t *testing.T, d *DataPlane, frame []byte) (session uint64, rule uint16) {
	t.Helper()
	before := map[uint64][]RuleUsage{}
	for _, id := range []uint64{1, 2} {
		before[id], _ = d.Sessions.Usage(id)
	}
	if _, _, err := d.Frames.Test(frame, 1); err != nil {
		t.Fatal(err)
	}
	for id, was := range before {
		now, _ := d.Sessions.Usage(id)
		for _, u := range now {
			for _, w := range was {
				if u.Rule == w.Rule && u.Volume != w.Volume {
					return id, u.Rule
				}
			}
		}
	}
	return 0, 0
}

const host = "02:00:00:00:00:a1"

// TestStations: a host is found where it was heard last, until that session
// ends; another session with the same entries is not it.
func TestStations(t *testing.T) {
	d := linkRig(t)
	want := func(what string, frame []byte, session uint64, rule uint16) {
		t.Helper()
		if s, r := passes(t, d, frame); s != session || r != rule {
			t.Errorf("%s: rule %d of session %d, want %d of %d", what, r, s, rule, session)
		}
	}
	want("to nobody", toHost(host), 0, 0)
	want("from session 1", fromHost(0x01000001, host), 1, 1)
	want("to session 1", toHost(host), 1, 2)
	want("from session 2", fromHost(0x01000002, host), 2, 1)
	want("to session 2", toHost(host), 2, 2)
	all, err := d.Stations()
	if err != nil || len(all) != 1 || all[0].Session != 2 || net.HardwareAddr(all[0].MAC[:]).String() != host || all[0].Idle > time.Minute {
		t.Errorf("stations: %+v, %v", all, err)
	}
	if _, err := deleteSession(d, 2); err != nil {
		t.Fatal(err)
	}
	want("to a session that has ended", toHost(host), 0, 0)
	if all, err := d.Stations(); err != nil || len(all) != 0 {
		t.Errorf("stations of a session that has ended: %+v, %v", all, err)
	}
	if err := d.Sessions.Put(frames(3, 0x01000002)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Frames.Test(toHost(host), 1); err != nil {
		t.Fatal(err)
	}
	usage, err := d.Sessions.Usage(3)
	if err != nil || usage[0].Volume.Packets+usage[1].Volume.Packets != 0 {
		t.Errorf("session 3, which has the former's entries: %v, %v", usage, err)
	}
}

// TestInjectFor gives a frame to one session, also where it keeps what comes.
func TestInjectFor(t *testing.T) {
	d := linkRig(t)
	punts := make(chan event.Punt, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = d.Punts.Read(ctx, func(p event.Punt) { punts <- p }) }()
	broadcast := toHost("ff:ff:ff:ff:ff:ff")
	packets := func(id uint64) uint64 {
		usage, err := d.Sessions.Usage(id)
		if err != nil {
			t.Fatal(err)
		}
		return usage[0].Volume.Packets + usage[1].Volume.Packets
	}
	if err := d.Frames.Inject(broadcast, 1); err != nil {
		t.Fatal(err)
	}
	if p := <-punts; p.Kind != event.PuntFlood || p.Link != lo || string(p.Data) != string(broadcast) {
		t.Errorf("a broadcast: %+v", p)
	}
	if err := d.InjectFor(2, broadcast, 1, false); err != nil {
		t.Fatal(err)
	}
	if packets(1) != 0 || packets(2) != 1 {
		t.Errorf("session 1: %d packets, session 2: %d; want 0 and 1", packets(1), packets(2))
	}
	held := frames(2, 0x01000002)
	held.Rules[1].Action = ActionHold
	if err := errors.Join(d.Sessions.Put(held), d.InjectFor(2, broadcast, 1, false)); err != nil {
		t.Fatal(err)
	}
	if p := <-punts; p.Kind != event.PuntBuffer || p.Session != 2 || p.Rule != 2 {
		t.Errorf("for a session that keeps what comes: %+v", p)
	}
	if err := d.InjectFor(2, broadcast, 1, true); err != nil {
		t.Fatal(err)
	}
	if packets(2) != 2 {
		t.Errorf("session 2: %d packets with what was kept, want 2", packets(2))
	}
	var none *NoSessionError
	if err := d.InjectFor(9, broadcast, 1, false); !errors.As(err, &none) {
		t.Errorf("for a session that is not there: %v", err)
	}
	select {
	case p := <-punts:
		t.Errorf("one record more: %+v", p)
	case <-time.After(10 * time.Millisecond):
	}
}

// TestLinkRefusals: rules and links that cannot be.
func TestLinkRefusals(t *testing.T) {
	d := linkRig(t)
	change := func(f func(*Session)) Session {
		s := frames(5, 0x01000005)
		f(&s)
		return s
	}
	for want, s := range map[string]Session{
		"link lo.7 is missing":             change(func(s *Session) { s.Rules[0].Forward.Link.VLAN, s.Rules[1].Link.VLAN = 7, 7 }),
		"want one for the session":         change(func(s *Session) { s.Rules[1].Link.VLAN = 7 }),
		"all rules of an Ethernet session": change(func(s *Session) { s.Rules[1].Ethernet = false }),
		"no UE addresses":                  change(func(s *Session) { s.Rules[0].Sources = plain(1, 1).Rules[0].Sources }),
		"frames forwarded by GTP-U":        change(func(s *Session) { s.Rules[0].Forward = Forwarding{} }),
		"want a TEID":                      change(func(s *Session) { s.Rules[0].TEID = 0 }),
	} {
		if err := d.Sessions.Put(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
	if err := d.Links.Put(Link{Interface: "lo", VLAN: 4095}); err == nil {
		t.Error("a VLAN 4095")
	}
	steered := srpolicy.Steering{Interface: "lo", VLANs: []uint16{100}, Policy: "n9"}
	if err := d.Steering.Put(steered); err == nil {
		t.Error("frames of a link are steered")
	}
	if err := errors.Join(d.Links.Delete(lo), d.Steering.Put(steered)); err != nil {
		t.Error(err)
	}
	if err := d.Links.Put(lo); err == nil {
		t.Error("steered frames are a link's")
	}
}
