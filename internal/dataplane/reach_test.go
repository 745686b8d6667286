package dataplane

import (
	"net/netip"
	"testing"
)

// handover is the session of UE n with its downlink to another gNB.
func handover(n, teid uint32, to string) Session {
	s := both4and6(n, teid)
	s.Rules[1].Forward = gnb(n, to)
	return s
}

// TestUEsReachNoPeer: an address is closed to UEs from the moment that a rule sends
// G-PDUs there, also where packets went to it before, and until no rule does.
func TestUEsReachNoPeer(t *testing.T) {
	d := sessionRig(t, Options{})
	must(t, d.Sessions.Put(both4and6(5, 7)))
	must(t, d.Sessions.Put(both4and6(6, 8)))
	resolve(t, d)
	four, six := ue4(5).String(), ue6(5).Addr().Next().String()
	try := func(step, want4, want6 string) {
		t.Helper()
		for range 2 { // the second by what the first has found out
			wantReason(t, d, step, uplinkFrame(7, four, "192.0.2.9", 2152), want4)
			wantReason(t, d, step+", IPv6", uplinkFrame(7, six, "2001:db8:ff::9", 2152), want6)
		}
		wantReason(t, d, step+": beside the gNB", uplinkFrame(7, four, "192.0.2.8", 2152), "forwarded")
	}
	try("no peer", "forwarded", "forwarded")
	wantReason(t, d, "its own gNB", uplinkFrame(7, four, "10.0.0.2", 2152), "ue_to_core")

	must(t, d.Sessions.Put(handover(5, 7, "192.0.2.9")))
	must(t, d.Sessions.Put(handover(6, 8, "192.0.2.9")))
	resolve(t, d)
	try("a gNB of two sessions", "ue_to_core", "forwarded")
	must(t, d.Sessions.Put(handover(6, 8, "2001:db8:ff::9")))
	must(t, reap(d))
	resolve(t, d)
	try("two gNBs", "ue_to_core", "ue_to_core")

	d.mu.Lock()
	s := d.settings.Want
	d.mu.Unlock()
	s.MayReach = []netip.Prefix{prefix("192.0.2.0/28")}
	must(t, d.SetSettings(s))
	try("ue_may_reach", "forwarded", "ue_to_core")
	s.MayReach = nil
	must(t, d.SetSettings(s))
	try("no more", "ue_to_core", "ue_to_core")

	must(t, d.Sessions.Put(both4and6(5, 7)))
	must(t, d.Sessions.Put(both4and6(6, 8)))
	must(t, reap(d))
	try("no gNB any more", "forwarded", "forwarded")
}

// TestRestartKeepsPeers: a daemon that starts again leaves a peer closed until all
// sessions are there.
func TestRestartKeepsPeers(t *testing.T) {
	opts := Options{PinPath: pinPath(t), Limits: sessionLimits}
	d := openWith(t, opts)
	prepareSessions(t, d)
	must(t, d.Sessions.Put(both4and6(5, 7)))
	must(t, d.Sessions.Put(handover(6, 8, "192.0.2.9")))
	must(t, d.Sessions.Put(handover(9, 9, "192.0.2.10")))
	must(t, d.Close())

	d = openWith(t, opts)
	prepareSessions(t, d)
	must(t, d.Sessions.Put(both4and6(5, 7)))
	resolve(t, d)
	four := ue4(5).String()
	for _, gnb := range []string{"192.0.2.9", "192.0.2.10"} {
		wantReason(t, d, gnb+", before its session", uplinkFrame(7, four, gnb, 2152), "ue_to_core")
	}
	must(t, d.Sessions.Put(handover(6, 8, "192.0.2.9")))
	must(t, d.Sweep())
	wantReason(t, d, "a gNB", uplinkFrame(7, four, "192.0.2.9", 2152), "ue_to_core")
	wantReason(t, d, "a gNB no more", uplinkFrame(7, four, "192.0.2.10", 2152), "forwarded")
}
