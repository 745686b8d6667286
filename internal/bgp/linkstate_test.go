package bgp

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/linkstate"
	"github.com/culvert-net/culvert/internal/testutil/tshark"
)

// tlv is one of BGP-LS, of octets in hex.
func tlv(kind uint16, value ...string) string {
	text := strings.ReplaceAll(strings.Join(value, ""), " ", "")
	return fmt.Sprintf("%04x%04x%s", kind, len(text)/2, text)
}

// Parts of NLRIs of IS-IS level 2, identifier 7, in AS 65001, by the last octet of a system ID.
func descriptor(kind uint16, last byte) string {
	return tlv(kind, tlv(512, "0000fde9"), tlv(513, "00000000"), tlv(515, fmt.Sprintf("0000000000%02x", last)))
}

func nlri(kind uint16, tlvs ...string) string {
	return tlv(kind, "02 0000000000000007", strings.Join(tlvs, ""))
}

func node(last byte) string { return nlri(1, descriptor(256, last)) }

func linkOf(from, to byte) string {
	at := func(n byte) string { return hex.EncodeToString(endOf(from, to, n).AsSlice()) }
	return nlri(2, descriptor(256, from), descriptor(257, to), tlv(261, at(from)), tlv(262, at(to)))
}

// endOf is the address of a router's end of its link with another one.
func endOf(a, b, of byte) netip.Addr {
	return addr(fmt.Sprintf("2001:db8:%x%x::%x", min(a, b), max(a, b), of))
}

func sidOf(last byte) string {
	return nlri(6, descriptor(256, last), tlv(518, fmt.Sprintf("fc00%04x000000010000000000000000", last)))
}

// reached is MP_REACH_NLRI of BGP-LS, and gone MP_UNREACH_NLRI.
func reached(nlris ...string) string {
	return long(0x0e, "4004 47 04 0a000042 00"+strings.Join(nlris, ""))
}

func gone(nlris ...string) string { return long(0x0f, "4004 47"+strings.Join(nlris, "")) }

// long is an optional attribute with a length of two octets.
func long(kind byte, value string) string {
	value = strings.ReplaceAll(value, " ", "")
	return fmt.Sprintf("90%02x%04x%s", kind, len(value)/2, value)
}

func lsAttribute(tlvs ...string) string { return long(29, strings.Join(tlvs, "")) }

// lsUpdates are the attributes of UPDATEs that describe two routers and their link.
func lsUpdates() []string {
	link := func(metric string, more ...string) string {
		return lsAttribute(tlv(1089, "4e9502f9"), tlv(1092, "00000063"), tlv(1095, metric), strings.Join(more, "")) // 1.25e9 octets/s
	}
	return []string{
		wellKnown + reached(node(1)) + lsAttribute(tlv(266, "290a"), tlv(1026, "7231"), tlv(1038, "00000000")),
		wellKnown + reached(node(2)) + lsAttribute(tlv(1024, "80"), tlv(1026, "7232")),
		wellKnown + reached(linkOf(1, 2)) + link("00000a",
			tlv(1088, "00000005"), tlv(1114, "000007d0"), tlv(1115, "000003e8 00002710"), tlv(1116, "00000010"), tlv(1096, "00000007 00000009"),
			// End.X SIDs: of algorithm 0, of 128, and of a LAN.
			tlv(1106, "0005 20 00 00 00 fc00000100010000 0000000000000000", tlv(1252, "20101000")),
			tlv(1106, "0005 80 80 00 00 fc00000100020000 0000000000000000", tlv(1252, "20101000")),
			tlv(1107, "0005 00 00 00 00 000000000002 fc00000100000000 0000000000000000")),
		wellKnown + reached(linkOf(2, 1)) + link("00000b", tlv(1114, "800007d0"), tlv(1115, "800003e8 00002710")),
		wellKnown + reached(sidOf(1)) + lsAttribute(tlv(1250, "0001 00 00"), tlv(1252, "20101000")),
		wellKnown + reached(sidOf(2)) + lsAttribute(tlv(1250, "001c 00 00"), tlv(1252, "20101000")),
		wellKnown + reached(nlri(4, descriptor(256, 1), tlv(265, "30 fc0000010000"))) + lsAttribute(tlv(1162, "00 00 0000 00000000")),
	}
}

func lsTopology() te.Topology {
	prefix := netip.MustParsePrefix
	return te.Topology{
		Nodes: []te.Node{{Name: "r1", SID: addr("fc00:1:0:1::"), Locator: prefix("fc00:1::/48")}, {Name: "r2", SID: addr("fc00:2:0:1::"), Locator: prefix("fc00:2::/48")}},
		Links: []te.Link{
			{From: "r1", To: "r2", Name: "2001:db8:12::1", Metric: 10, Capacity: 1e10, Delay: 2 * time.Millisecond, Affinity: 5, SRLG: []uint32{7, 9}, SID: addr("fc00:1:1::")},
			// The delay is anomalous, and the router overloaded.
			{From: "r2", To: "r1", Name: "2001:db8:12::1", Metric: 1<<24 + 11, Capacity: 1e10, Delay: 10 * time.Millisecond},
		},
	}
}

// hears starts a speaker with peers, the first of which writes by hand; both are at addresses of
// 127.94.N.
func hears(t *testing.T, n int, peers ...Peer) (s *Speaker, at func(last int) netip.Addr) {
	t.Helper()
	at = func(last int) netip.Addr { return addr(fmt.Sprintf("127.94.%d.%d", n, last)) }
	peers = append([]Peer{{Address: at(66), ASN: 65001, Passive: true, Families: []Family{LinkState}}}, peers...)
	return speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{at(1)}, Peers: peers}, nil), at
}

func topologyOf(s *Speaker) (te.Topology, []te.LeftOut) {
	return linkstate.Topology(s.Network(time.Minute).Objects)
}

// is waits for a topology.
func (s *Speaker) is(t *testing.T, what string, want te.Topology) {
	t.Helper()
	eventually(t, what, func() bool {
		got, _ := topologyOf(s)
		return reflect.DeepEqual(got, want)
	})
}

// What a router says in octets becomes a topology: of changes, a withdrawal, the session's end,
// after which it stays, its return, and what is not said again then.
func TestLinkState(t *testing.T) {
	t.Parallel()
	s, at := hears(t, 31)
	if n := s.Network(time.Minute); len(n.Waits) != 1 || len(n.Objects) > 0 {
		t.Errorf("before a session: %+v", n)
	}
	peer := tellTo(t, at(66), at(1), bgp.RF_LS)
	for _, u := range lsUpdates() {
		peer.update(u)
	}
	want := lsTopology()
	s.is(t, "the topology is there", want)
	if _, left := topologyOf(s); len(left) > 0 || len(s.Network(time.Minute).Waits) != 1 {
		t.Errorf("left out %v; before End-of-RIB: %+v", left, s.Network(time.Minute))
	}
	endOfRIB := gone()
	peer.update(endOfRIB)
	eventually(t, "End-of-RIB arrives", func() bool { return len(s.Network(time.Minute).Waits) == 0 })

	peer.update(wellKnown + reached(linkOf(1, 2)) + lsAttribute(tlv(1095, "00000c"), tlv(1089, "4e9502f9")))
	changed := lsTopology()
	changed.Links[0] = te.Link{From: "r1", To: "r2", Name: "2001:db8:12::1", Metric: 12, Capacity: 1e10}
	s.is(t, "a change arrives", changed)
	peer.update(gone(linkOf(1, 2)))
	s.is(t, "a link is gone in both directions", te.Topology{Nodes: want.Nodes})
	peer.update(lsUpdates()[2])
	s.is(t, "it is back", want)

	peer.conn.Close()
	eventually(t, "the session is down", func() bool { return !isEstablished(s) })
	eventually(t, "what it had said is nobody's after the time that is bearable", func() bool { n := s.Network(0); return len(n.Unknown) == 1 && len(n.Objects) == 0 })
	s.is(t, "until then it stays", want)
	peer = tellTo(t, at(66), at(1), bgp.RF_LS)
	established(t, s)
	for _, u := range lsUpdates()[:4] {
		peer.update(u)
	}
	s.is(t, "it stays until all is said again", want)
	peer.update(endOfRIB)
	without := lsTopology()
	for i := range without.Nodes {
		without.Nodes[i] = te.Node{Name: without.Nodes[i].Name}
	}
	s.is(t, "what is not said again is gone", without)
}

// A peer that nobody named, and one without the family, say nothing.
func TestLinkStateOfOthers(t *testing.T) {
	t.Parallel()
	s, at := hears(t, 32, Peer{Address: addr("127.94.32.67"), ASN: 65001, Passive: true, Families: []Family{SRPolicy}})
	other := tellTo(t, at(67), at(1), bgp.RF_LS, bgp.RF_SR_POLICY_IPv6)
	named := tellTo(t, at(66), at(1), bgp.RF_LS)
	other.update(lsUpdates()[0])
	named.update(lsUpdates()[1])
	eventually(t, "the named one is heard", func() bool { return len(s.Network(time.Minute).Objects) == 1 })
	open, err := bgp.NewBGPOpenMessage(65001, 90, addr("10.0.0.68"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := call(at(68), netip.AddrPortFrom(at(1), testPort), open); err == nil {
		conn.Close()
		t.Error("a peer that nobody named has a session")
	}
}

// An attribute that is malformed takes its link out, and no more. An NLRI that is sound as octets
// and means nothing is left out with the reason, and counted.
func TestMalformedLinkState(t *testing.T) {
	t.Parallel()
	s, at := hears(t, 33)
	peer := tellTo(t, at(66), at(1), bgp.RF_LS)
	for _, u := range lsUpdates() {
		peer.update(u)
	}
	s.is(t, "the topology is there", lsTopology())
	for name, tt := range map[string]struct{ attrs, why string }{
		"a metric of 4 octets":         {lsAttribute(tlv(1095, "0000000a")), "it has no IGP metric"},
		"a TLV longer than the rest":   {lsAttribute("0447 0004 000a"), "it has no IGP metric"},
		"a bandwidth that is NaN":      {lsAttribute(tlv(1095, "0a"), tlv(1089, "7fc00000")), "it has no IGP metric"},
		"a bandwidth below 0":          {lsAttribute(tlv(1095, "0a"), tlv(1089, "ce9502f9")), "it has no IGP metric"},
		"an End.X SID without its end": {lsAttribute(tlv(1095, "0a"), tlv(1106, "0005 00 00 00 00 fc00")), "it has no IGP metric"},
		"no attribute":                 {"", "it has no IGP metric"},
	} {
		peer.update(wellKnown + reached(linkOf(1, 2)) + tt.attrs)
		eventually(t, name, func() bool {
			got, left := topologyOf(s)
			return len(got.Nodes) == 2 && len(got.Links) == 0 && slices.ContainsFunc(left, func(l te.LeftOut) bool {
				return strings.Contains(l.String(), "link r1 to r2") && strings.Contains(l.Why, tt.why)
			})
		})
		peer.update(lsUpdates()[2])
		s.is(t, name+": a sound one is taken", lsTopology())
	}
	two := nlri(6, descriptor(256, 1), tlv(518, "fc000001000000010000000000000000 fc000001000000020000000000000000"))
	peer.update(wellKnown + reached(two))
	eventually(t, "a SID NLRI of two SIDs is left out", func() bool {
		_, left := topologyOf(s)
		return len(left) == 1 && left[0].Why == "it has not 1 SID"
	})
	if peers, err := s.Peers(t.Context()); err != nil || peers[0].Malformed == 0 || peers[0].State != "established" {
		t.Errorf("%+v, %v", peers, err)
	}
}

// tshark reads the octets that these tests write as what they mean. Version 4.0 knows no TLVs of
// SRv6.
func TestTsharkReadsLinkState(t *testing.T) {
	var all [][]byte
	for _, u := range lsUpdates() {
		attrs := unhex(t, u)
		b := append(slices.Repeat([]byte{0xff}, 16), 0, 0, bgp.BGP_MSG_UPDATE, 0, 0)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(attrs))), attrs...)
		binary.BigEndian.PutUint16(b[16:], uint16(len(b)))
		all = append(all, b)
	}
	path := capture(t, all)
	if out := tshark.Read(t, path, "-T", "fields", "-e", "bgp.type", "-e", "_ws.malformed"); out != strings.Repeat("2\t\n", len(all)) {
		t.Errorf("tshark sees %q", out)
	}
	text := strings.Join(strings.Fields(tshark.Read(t, path, "-O", "bgp")), " ")
	for _, want := range []string{
		"Protocol ID: IS-IS Level 2 (2) Identifier: Unknown (7)", "AS ID: 65001", "IGP ID: 000000000001", "Node name: r1", "Overload Bit: Set",
		"IPv6 Interface Address: 2001:db8:12::1", "IPv6 Neighbor Address: 2001:db8:12::2", "IGP Metric: 0x00000a (10)", "Group Mask: 5",
		"Maximum link bandwidth: 10000.00 Mbps", "Anomalous (A) bit: Set", "Delay: 2000", "Min Delay: 1000 Reserved: 0x00 Max Delay: 10000", "Reachability prefix: fc00:1::",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("tshark does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// Whatever a peer writes as NLRI and attribute of BGP-LS, nothing panics, and what is made of it is
// a topology.
func FuzzLinkState(f *testing.F) {
	for _, u := range lsUpdates() {
		attrs, err := parseHex(u)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(updateOf(attrs))
	}
	f.Fuzz(receiveUpdate)
}

// soundTopology wants each link to have its other direction, and values to compute with.
func soundTopology(t *testing.T, topology te.Topology) {
	names, links := map[string]bool{}, map[[3]string]bool{}
	for _, n := range topology.Nodes {
		if n.Name == "" || names[n.Name] {
			t.Errorf("node %+v: no name, or one that another node has", n)
		}
		names[n.Name] = true
	}
	for _, l := range topology.Links {
		links[[3]string{l.From, l.To, l.Name}] = true
	}
	for _, l := range topology.Links {
		if !names[l.From] || !names[l.To] || !links[[3]string{l.To, l.From, l.Name}] || l.Metric == 0 || !(l.Capacity >= 0 && l.Capacity < 1e40) {
			t.Errorf("link %+v", l)
		}
	}
}

// Another GoBGP, which writes routes by its own types, and reflects them.
func TestLinkStateOfGoBGP(t *testing.T) {
	t.Parallel()
	s, at := hears(t, 34, Peer{Address: addr("127.94.34.2"), ASN: 65001, Passive: true, Families: []Family{LinkState}})
	source := server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), &slog.LevelVar{}))
	go source.Serve()
	if err := source.StartBgp(t.Context(), &api.StartBgpRequest{Global: &api.Global{Asn: 65001, RouterId: "10.0.0.2", ListenPort: -1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Stop() })
	err := source.AddPeer(t.Context(), &api.AddPeerRequest{Peer: &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: at(1).String(), PeerAsn: 65001}, Transport: &api.Transport{LocalAddress: at(2).String(), RemotePort: testPort},
		AfiSafis: []*api.AfiSafi{{Config: &api.AfiSafiConfig{Enabled: true, Family: apiutil.ToApiFamily(bgp.AFI_LS, bgp.SAFI_LS)}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range lsUpdates() {
		var p apiutil.Path
		p.Family = bgp.RF_LS
		for _, a := range attributes(t, strings.ReplaceAll(strings.ReplaceAll(u, " ", ""), "\n", "")) {
			if reach, ok := a.(*bgp.PathAttributeMpReachNLRI); ok {
				p.Nlri = reach.Value[0].NLRI
			}
			p.Attrs = append(p.Attrs, a)
		}
		if _, err := source.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{&p}}); err != nil {
			t.Fatal(err)
		}
	}
	s.is(t, "its topology is there", lsTopology())
}

// Time and other peers decide what counts of a peer that is away.
func TestNetworkOf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	router := func(id string) linkstate.Router { return linkstate.Router{ID: id} }
	table := func(up, complete bool, since time.Duration, old bool, routers ...string) *lsTable {
		t := &lsTable{objects: map[string]lsObject{}, up: up, complete: complete, since: now.Add(-since)}
		for _, r := range routers {
			t.objects[r] = lsObject{linkstate.Node{Router: router(r)}, old}
		}
		return t
	}
	a, b := addr("10.0.0.1"), addr("10.0.0.2")
	for name, tt := range map[string]struct {
		a, b                    *lsTable
		objects, waits, unknown int
	}{
		"both say all":                         {table(true, true, 0, false, "x", "y"), table(true, true, 0, false, "y", "z"), 3, 0, 0},
		"one is away":                          {table(false, true, time.Minute, true, "x", "y"), table(true, true, 0, false, "y", "z"), 3, 0, 0},
		"one is away for too long":             {table(false, true, time.Hour, true, "x", "y"), table(true, true, 0, false, "y", "z"), 2, 0, 1},
		"too long, and the other one knows it": {table(false, true, time.Hour, true, "x"), table(true, true, 0, false, "x", "z"), 2, 0, 0},
		"one has returned, and says it again":  {table(true, false, time.Second, true, "x", "y"), table(true, true, 0, false, "z"), 3, 1, 0},
		"sessions have no End-of-RIB":          {table(true, false, settled, true, "x"), table(true, false, settled, false, "z"), 1, 0, 0},
		"one has not come":                     {&lsTable{}, table(true, true, 0, false, "z"), 1, 1, 0},
	} {
		n := networkOf(map[netip.Addr]*lsTable{a: tt.a, b: tt.b}, 10*time.Minute, now)
		if len(n.Objects) != tt.objects || len(n.Waits) != tt.waits || len(n.Unknown) != tt.unknown {
			t.Errorf("%s: %+v", name, n)
		}
	}
	// Of a router that a live peer knows, the live one's word counts.
	gone := table(false, true, time.Second, true)
	gone.objects["link"] = lsObject{linkstate.Link{From: router("x"), To: router("y")}, true}
	if n := networkOf(map[netip.Addr]*lsTable{a: gone, b: table(true, true, 0, false, "x")}, time.Hour, now); len(n.Objects) != 1 {
		t.Errorf("%+v", n)
	}
}
