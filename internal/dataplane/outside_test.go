package dataplane

import (
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// ofAddress is a session of a UE outside of the pools.
func ofAddress(n uint32, ue netip.Addr) Session {
	s := plain(n, n)
	only := []netip.Prefix{netip.PrefixFrom(ue, 32)}
	s.Rules[0].Sources, s.Rules[1].Destinations = only, only
	return s
}

// TestUEsOfOneBucket: UEs whose bucket has no slot for all of them are reached, and none of them is a
// source of packets from the data network.
func TestUEsOfOneBucket(t *testing.T) {
	const many = 3 * int(abi.UeBucketsUE_SLOTS)
	d := sessionRig(t, Options{})
	must(t, d.Ports.Set(1, port.Port{Roles: port.N6}))
	var ues []netip.Addr // all of bucket 0 of 64
	for a := addr("10.77.0.1"); len(ues) <= many; a = a.Next() {
		if abi.BE32(a)*uint32(abi.UeBucketsUE_HASH)>>26 == 0 {
			ues = append(ues, a)
		}
	}
	nobody := ues[many].String()
	for i, ue := range ues[:many] {
		must(t, d.Sessions.Put(ofAddress(uint32(i+1), ue)))
	}
	resolve(t, d)
	for range 2 {
		for i, ue := range ues[:many] {
			wantReason(t, d, "to "+ue.String(), downlinkFrame("192.0.2.1", ue.String(), 80), "forwarded")
			wantReason(t, d, "from "+ue.String(), downlinkFrame(ue.String(), ues[(i+1)%many].String(), 80), "ue_source")
		}
		wantReason(t, d, "from an address that no UE has", downlinkFrame(nobody, ues[0].String(), 80), "forwarded")
	}
	for i := range many {
		must(t, d.Sessions.Drop(uint64(i+1)))
	}
	d.Sessions.Settle()
	wantReason(t, d, "from what was a UE, to none", downlinkFrame(ues[0].String(), "192.0.2.1", 80), "role")
}

// TestUEComesWhereUEsSend: what another UE's packets found free to reach is no longer free once a UE
// has the address.
func TestUEComesWhereUEsSend(t *testing.T) {
	d := sessionRig(t, Options{})
	must(t, d.Sessions.Put(plain(5, 7)))
	resolve(t, d)
	up := uplinkFrame(7, ue4(5).String(), "192.0.2.9", 80)
	for range 2 {
		wantReason(t, d, "to the data network", up, "forwarded")
	}
	must(t, d.Sessions.Put(ofAddress(9, addr("192.0.2.9"))))
	resolve(t, d)
	wantReason(t, d, "to a UE", up, "ue_to_ue")
}
