package dataplane

import (
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// accessOf is the entry of table access that a port names.
func accessOf(t *testing.T, d *DataPlane, ifindex uint32) (index uint8, entry abi.Access) {
	t.Helper()
	var p abi.Port
	must(t, d.maps[abi.MapPort].Lookup(ifindex, &p))
	must(t, d.maps[abi.MapAccess].Lookup(uint32(p.Access), &entry))
	return p.Access, entry
}

// Ports with the same peers and services share an entry, which is never changed while a
// port names it. A daemon that starts again finds it.
func TestPortsShareAccess(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path)
	peers := func(list ...string) port.Port {
		p := port.Port{Roles: port.N3}
		for _, text := range list {
			p.Access.Peers = append(p.Access.Peers, netip.MustParsePrefix(text))
		}
		return p
	}
	must(t, d.Ports.Set(1, peers("192.0.2.0/24", "2001:db8::/32")))
	must(t, d.Ports.Set(2, peers("192.0.2.0/24", "2001:db8::/32")))
	first, entry := accessOf(t, d, 1)
	if second, _ := accessOf(t, d, 2); first == 0 || second != first {
		t.Errorf("two ports with the same peers have the entries %d and %d", first, second)
	}
	want := abi.Access{Peers4Count: 1, Peers6Count: 1}
	want.Peers4[0] = abi.Prefix4{Address: abi.BE32(netip.MustParseAddr("192.0.2.0")), Mask: abi.BE32(netip.MustParseAddr("255.255.255.0"))}
	want.Peers6[0] = abi.Prefix6{Hi: 0x20010db8 << 32, MaskHi: 0xffffffff << 32}
	if entry != want {
		t.Errorf("the entry is %+v, want %+v", entry, want)
	}
	must(t, d.Ports.Set(2, peers("192.0.2.0/24")))
	if second, _ := accessOf(t, d, 2); second == 0 || second == first {
		t.Errorf("a port with other peers has the entry %d beside %d", second, first)
	}
	if _, still := accessOf(t, d, 1); still != want {
		t.Errorf("the entry of the other port became %+v", still)
	}
	must(t, d.Close())

	d = openPinned(t, path)
	must(t, d.Ports.Set(1, peers("192.0.2.0/24", "2001:db8::/32")))
	must(t, d.Ports.Delete(2))
	must(t, d.Sweep())
	if again, _ := accessOf(t, d, 1); again != first {
		t.Errorf("after a restart port 1 has the entry %d, want %d", again, first)
	}
	// What no port names is free: all entries but one, and 0, can be taken.
	for i := range uint32(port.MaxAccesses - 1) {
		must(t, d.Ports.Set(int(10+i), peers(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i)}), 24).String())))
	}
	if err := d.Ports.Set(9, peers("10.1.0.0/24")); err == nil {
		t.Error("there is room for one entry more than the table has")
	}
}

// A daemon that starts again sets one port after the other. Those that come later keep
// the peers of the daemon before until then.
func TestRestartKeepsAccess(t *testing.T) {
	path := pinPath(t)
	peer := func(i byte) port.Port {
		return port.Port{Roles: port.N3, Access: port.Access{Peers: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, i}), 24)}}}
	}
	d := openPinned(t, path)
	must(t, d.Ports.Set(1, peer(1)))
	must(t, d.Ports.Set(2, peer(2)))
	_, want := accessOf(t, d, 2)
	must(t, d.Close())

	d = openPinned(t, path)
	for i := range byte(2 * port.MaxAccesses) { // more than the table has, one after the other
		must(t, d.Ports.Set(1, peer(10+i)))
		if _, got := accessOf(t, d, 2); got != want {
			t.Fatalf("the peers of port 2 became %v after %d changes of port 1", got.Peers4[0], i+1)
		}
	}
	must(t, d.Sweep())
	if index, _ := accessOf(t, d, 2); index != 0 {
		t.Errorf("after the sweep port 2 still names entry %d", index)
	}
}
