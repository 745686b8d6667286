package bgp

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/tshark"
)

// judged are UPDATEs with all that a node and an injector advertise, and those of
// others that the tests write by hand.
func judged(t *testing.T) (all [][]byte) {
	t.Helper()
	add := func(attrs ...bgp.PathAttributeInterface) {
		// tshark 4.0 does not read the NLRI of a policy with an IPv6 endpoint.
		attrs = slices.DeleteFunc(attrs, func(a bgp.PathAttributeInterface) bool {
			reach, ok := a.(*bgp.PathAttributeMpReachNLRI)
			return ok && reach.AFI == bgp.AFI_IP6 && reach.SAFI == bgp.SAFI_SRPOLICY
		})
		b, err := bgp.NewBGPUpdateMessage(nil, attrs, nil).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	_, attrs, err := writePolicy(gold(), addr("fd11::1"), []netip.Addr{addr("10.0.0.5")})
	if err != nil {
		t.Fatal(err)
	}
	add(attrs...)
	vpns, err := parseVPNs([]VPN{{Distinguisher: "65001:7", Export: []string{"65001:100"}},
		{Tenant: 7, Distinguisher: "10.0.0.1:7", Export: []string{"65001:7"}}})
	if err != nil {
		t.Fatal(err)
	}
	a := announcer{routerID: addr("10.0.0.1"), vpns: vpns, withSIDs: true, locator: true}
	adverts, err := a.adverts(nodeOf("1"), partsOf("1", 7), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(adverts)) {
		add(adverts[key].path.Attrs...)
	}
	add(attributes(t, wellKnown+vpn6+target+transposed)...)
	return all
}

// TestTsharkFindsNoFault: what we advertise is BGP to somebody else too, without a
// warning, and says what is meant.
func TestTsharkFindsNoFault(t *testing.T) {
	all := judged(t)
	path := capture(t, all)
	out := tshark.Read(t, path, "-T", "fields", "-e", "bgp.type", "-e", "_ws.expert.severity", "-e", "_ws.malformed")
	if want := strings.Repeat("2\t\t\n", len(all)); out != want {
		t.Errorf("tshark sees %q, want %q", out, want)
	}
	text := strings.Join(strings.Fields(tshark.Read(t, path, "-O", "bgp")), " ")
	for _, want := range []string{
		"Route Target: 10.0.0.5:0", "COMMUNITIES: NO_ADVERTISE",
		"SR TE Policy Type (133 bytes)", "Preference: 000000c8", "Type code: Unknown (20) length: 18 Value: 0000cafe00000000000000000000000001c3",
		"Type: Weight sub-TLV (9) Length: 6 Data: 000000000003 SubTLV: Unknown Type: Unknown (13) Length: 18 Data: 0000fcff0003000000000000000000000001",
		"Policy name: by-r3", // candidate path name: tshark 4.0 calls it so
		"Next hop: 2001:db8::1 IPv6 Address: 2001:db8::1 Number of Subnetwork points of attachment (SNPA): 0 Network Layer Reachability Information (NLRI) fc00:0:1::/48",
		"SRv6 SID Value: fc00:0:1:4:: SRv6 SID Flags: 0x00 SRv6 Endpoint Behavior: End.DT4 (0x0013)",
		"SRv6 SID Value: fc00:0:1:6:: SRv6 SID Flags: 0x00 SRv6 Endpoint Behavior: End.DT6 (0x0012)",
		"Route Target: 65001:7",
		"SRv6 SID Value: fc00:0:1:107:: SRv6 SID Flags: 0x00 SRv6 Endpoint Behavior: End.DT46 (0x0014)",
		"Locator Block Length: 32 Locator Node Length: 16 Function Length: 16 Argument Length: 0 Transposition Length: 0 Transposition Offset: 0",
		"Locator Block Length: 40 Locator Node Length: 24 Function Length: 16 Argument Length: 0 Transposition Length: 16 Transposition Offset: 64",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("tshark does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// capture writes messages as packets of one TCP connection.
func capture(t *testing.T, all [][]byte) string {
	t.Helper()
	var packets [][]byte
	seq := uint32(1)
	for _, b := range all {
		packets = append(packets, packet.Frame(packet.IPv6{Src: addr("2001:db8::1"), Dst: addr("2001:db8::2")},
			packet.TCP{Sport: 40000, Dport: Port, Sequence: seq}, packet.Payload{Data: b}))
		seq += uint32(len(b))
	}
	return tshark.Packets(t, packets)
}
