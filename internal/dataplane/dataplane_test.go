package dataplane

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// smallLimits make Open quick, and tables that a test can fill.
var smallLimits = Limits{SIDs: 1024, Policies: 64, SegmentLists: 128, Tunnels: 512, Routes: 256, Adjacencies: 64}

// open loads a data path without pins.
func open(t *testing.T) *DataPlane {
	t.Helper()
	return openWith(t, Options{Limits: smallLimits})
}

func openWith(t *testing.T, opts Options) *DataPlane {
	t.Helper()
	needRoot(t)
	d, err := Open(again(t, opts))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the test loads eBPF programs (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON)")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// single is the prefix of one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func addrs(all ...string) []netip.Addr {
	out := make([]netip.Addr, len(all))
	for i, s := range all {
		out[i] = addr(s)
	}
	return out
}

var (
	hostA = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	hostB = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
)

// ready is a next hop on an interface.
func ready(ifindex int) *adjacency.NextHop {
	return &adjacency.NextHop{Ifindex: ifindex, MTU: 1500, Dst: hostB, Src: hostA}
}

// policyTo is a policy with one list.
func policyTo(name string, segments ...string) srpolicy.Policy {
	return srpolicy.Policy{Name: name, SegmentLists: []srpolicy.SegmentList{{Segments: addrs(segments...)}}}
}

// testSettings have one of each list.
func testSettings() Settings {
	return Settings{
		Source: addr("fc00:a::1"), ErrorsPerSecond: 100,
		Domain:        []netip.Prefix{prefix("fc00::/16")},
		GTPUAddresses: addrs("10.0.0.1", "2001:db8::1"),
		Pools:         []netip.Prefix{prefix("10.45.0.0/24"), prefix("2001:db8:45::/56")},
		Locators:      []settings.Locator{{Prefix: prefix("fc00:a::/32"), FunctionBits: 8}},
	}
}

// content is everything that a test configures, each kind of it.
func content() ([]srpolicy.Policy, []gtpu.Tunnel, []srv6.LocalSID, []srpolicy.Steering) {
	two := policyTo("two", "fc00:b::1", "fc00:c::1")
	two.SegmentLists = append(two.SegmentLists, srpolicy.SegmentList{Weight: 3, Segments: addrs("fc00:d::1")})
	two.BindingSID = addr("fc00:a:0:b::")
	policies := []srpolicy.Policy{policyTo("one", "fc00:b::1"), two}
	tunnels := []gtpu.Tunnel{
		{Name: "n3", LocalTEID: 7, Decapsulate: true, Remote: addr("10.0.0.2"), RemoteTEID: 8, QFI: 9, PDUSessionContainer: srv6.ContainerDownlink},
		{Name: "big", LocalTEID: 0x12345678, Policy: "one"},
		{Name: "there", LocalTEID: 9, SwitchTo: "back", Remote: addr("2001:db8::2"), RemoteTEID: 1},
		{Name: "back", LocalTEID: 10, SwitchTo: "there", Remote: addr("10.0.0.3"), RemoteTEID: 2},
	}
	sids := []srv6.LocalSID{
		{SID: prefix("fc00:a:100::/40"), Behavior: srv6.End, Flavors: []srv6.Flavor{srv6.PSP, srv6.USD}},
		{SID: prefix("fc00:a:200::/40"), Behavior: srv6.EndX, NextHop: addr("fe80::2"), Interface: "eth0"},
		{SID: prefix("fc00:a:300::/40"), Behavior: srv6.EndDT4, Table: 10, AllowUpperLayer: true},
		{SID: prefix("fc00:a:400::/40"), Behavior: srv6.EndMGTP4E, SourcePrefixLength: 64, PDUSessionContainer: srv6.ContainerUplink},
		{SID: prefix("fc00:a:500::/40"), Behavior: srv6.EndMGTP6D, Policy: "one", Source: addr("fc00:a::2"), PDUType: srv6.PDUTypeIPv4, ArgsOffset: 64},
		{SID: prefix("fc00:f::1/128"), Behavior: srv6.EndMAP, Map: addr("fc00:b::9")},
		{SID: prefix("fc00:f::2/128"), Behavior: srv6.EndDX4, Interface: "eth1"},
	}
	steering := []srpolicy.Steering{
		{Prefix: prefix("10.45.0.7/32"), Tunnel: "n3"},
		{Prefix: prefix("10.45.0.8/32"), Policy: "one"},
		{Prefix: prefix("10.45.0.9/32"), Policy: "two"},
		{Prefix: prefix("2001:db8:45:3::/64"), Tunnel: "there"},
		{Prefix: prefix("10.46.0.0/16"), Tunnel: "back"},
		{Prefix: prefix("10.47.0.0/16"), Policy: "two"},
		{Prefix: prefix("192.0.2.0/24"), GTP4D: &srpolicy.GTP4D{SIDPrefix: prefix("fc00:e::/48"), SourcePrefix: prefix("fc00:a:ffff::/64"), PDUType: srv6.PDUTypeIPv4}},
		{Prefix: prefix("2001:db8:46::/48"), Policy: "one"},
		{Interface: "lo", VLANs: []uint16{5, 6}, Policy: "one"},
	}
	return policies, tunnels, sids, steering
}

// putContent puts it all, and routes.
func putContent(t *testing.T, d *DataPlane) {
	t.Helper()
	policies, tunnels, sids, steering := content()
	must(t, d.SetSettings(testSettings()))
	must(t, d.Ports.Set(1, port.Port{Roles: port.Edge}))
	for _, p := range policies {
		must(t, d.Policies.Put(p))
	}
	for _, v := range tunnels {
		must(t, d.Tunnels.Put(v))
	}
	for _, s := range sids {
		must(t, d.SIDs.Put(s))
	}
	for _, s := range steering {
		must(t, d.Steering.Put(s))
	}
	must(t, d.Steering.PutLocal(single(addr("10.0.0.1"))))
	must(t, d.Steering.PutLocal(single(addr("2001:db8::1"))))
	must(t, d.Routes.Put(0, prefix("10.60.0.0/16"), []AdjacencyKey{{NextHop: addr("10.0.0.2")}, {Interface: "eth0"}}))
	must(t, d.Routes.Put(10, prefix("2001:db8:60::/48"), nil))
	for _, k := range d.Adjacencies.Keys() {
		must(t, d.Adjacencies.SetNextHop(k, ready(1)))
	}
}

// deleteContent is the reverse, users first.
func deleteContent(t *testing.T, d *DataPlane) {
	t.Helper()
	policies, tunnels, sids, steering := content()
	must(t, d.Routes.Delete(0, prefix("10.60.0.0/16")))
	must(t, d.Routes.Delete(10, prefix("2001:db8:60::/48")))
	must(t, d.Steering.DeleteLocal(single(addr("10.0.0.1"))))
	must(t, d.Steering.DeleteLocal(single(addr("2001:db8::1"))))
	for _, s := range steering {
		must(t, d.Steering.Delete(s))
	}
	for _, s := range sids {
		must(t, d.SIDs.Delete(s.SID))
	}
	for _, v := range tunnels {
		must(t, d.Tunnels.Delete(v.Name))
	}
	for _, p := range policies {
		must(t, d.Policies.Delete(p.Name))
	}
	must(t, d.Ports.Delete(1))
}
