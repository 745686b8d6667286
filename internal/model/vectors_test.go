package model_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// differs is where our octets and a capture's are not the same, counted from
// the layer-3 header, and why.
type differs struct {
	at, length int
	why        string
}

// The reasons that come up again.
const (
	entropy  = "ours is entropy from the inner flow"
	ownHop   = "the capture was taken a hop before its input was"
	dfAndID  = "ours sets DF and needs no ID"
	checksum = "follows from the other differences"
)

// vector is one capture of another implementation: our output for its input must
// equal its output, apart from the octets listed.
type vector struct {
	name    string
	file    string
	in, out int // frame numbers, as tshark counts
	config  config.Config
	differs []differs
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func policy(behavior srv6.Behavior, segments ...string) []srpolicy.Policy {
	var list []netip.Addr
	for _, s := range segments {
		list = append(list, addr(s))
	}
	return []srpolicy.Policy{{Name: "b", Behavior: behavior, SegmentLists: []srpolicy.SegmentList{{Segments: list}}}}
}

func sids(s srv6.LocalSID) []srv6.LocalSID { return []srv6.LocalSID{s} }

var toGTP4 = srv6.LocalSID{SID: prefix("2001:db8::/32"), Behavior: srv6.EndMGTP4E, SourcePrefixLength: 64}

func vectors() []vector {
	downlink := toGTP4
	downlink.PDUSessionContainer = srv6.ContainerDownlink
	return []vector{
		{"H.M.GTP4.D", "h_m_gtp4_d", 5, 6, config.Config{Steering: []srpolicy.Steering{{Prefix: prefix("10.99.0.0/16"),
			GTP4D: &srpolicy.GTP4D{SIDPrefix: prefix("2001:db8::/32"), PDUType: srv6.PDUTypeIPv4,
				SourcePrefix: netip.PrefixFrom(addr("2001:db8:2::1"), 64)}}}},
			[]differs{{1, 3, "flow label: " + entropy}}},
		{"what H.M.GTP4.D sent, back to the GTP-U that it came from", "h_m_gtp4_d", 6, 5, config.Config{SIDs: sids(downlink)},
			[]differs{{4, 4, dfAndID}, {8, 1, "two translators, two hops"}, {10, 2, checksum},
				{20, 2, entropy}, {26, 2, "no UDP checksum over IPv4"}}},
		{"what H.M.GTP4.D sent, into End.M.GTP4.E", "h_m_gtp4_d", 6, 7, config.Config{SIDs: sids(downlink)},
			[]differs{{6, 1, dfAndID}, {8, 1, ownHop}, {10, 2, checksum},
				{12, 4, "their IPv4 source is not the one that the SRv6 source carries"}, {20, 2, entropy}}},
		{"End.M.GTP4.E behind its penultimate segment", "end_m_gtp4_e", 5, 6, config.Config{SIDs: []srv6.LocalSID{
			{SID: prefix("2001:db8:dead::1/128"), Behavior: srv6.End}, toGTP4}},
			[]differs{{4, 2, dfAndID}, {8, 1, ownHop}, {10, 2, checksum}, {20, 2, entropy}}},
		{"End.M.GTP6.D", "end_m_gtp6_d", 8, 9, config.Config{Policies: policy(srv6.HEncaps, "2001:db8:e::"), SIDs: sids(srv6.LocalSID{
			SID: prefix("2001:db8:f::1/128"), Behavior: srv6.EndMGTP6D, Policy: "b", Source: addr("2001:db8:2::1"),
			PDUType: srv6.PDUTypeIPv6, ArgsOffset: 88})},
			[]differs{{1, 3, "flow label: " + entropy}}},
		{"End.M.GTP6.D.Di", "end_m_gtp6_d_di", 7, 8, config.Config{Policies: policy(srv6.HEncaps, "2001:db8:e::1"), SIDs: sids(srv6.LocalSID{
			SID: prefix("2001:db8:f::1/128"), Behavior: srv6.EndMGTP6DDi, Policy: "b", Source: addr("2001:db8:2::1"),
			PDUType: srv6.PDUTypeIPv6})},
			[]differs{{1, 3, "flow label: " + entropy}}},
		{"End on what End.M.GTP6.D.Di sent", "end_m_gtp6_d_di", 8, 9, config.Config{SIDs: sids(srv6.LocalSID{
			SID: prefix("2001:db8:e::1/128"), Behavior: srv6.End})}, nil},
		{"End.M.GTP6.E", "end_m_gtp6_e", 5, 6, config.Config{SIDs: sids(srv6.LocalSID{
			SID: prefix("2001:db8:f::/64"), Behavior: srv6.EndMGTP6E, Source: addr("2001:db8:2::1")})},
			[]differs{{1, 3, "flow label: " + entropy}, {40, 2, entropy}, {46, 2, checksum}}},
	}
}

// TestVectors holds our packets against captures of another implementation,
// in both directions, where those obey RFC 9433. Every octet that differs is
// listed, and every octet that is listed differs.
func TestVectors(t *testing.T) {
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			frames := capture(t, v.file)
			got := through(t, v.config, frames[v.in-1])
			want := frames[v.out-1][14:]
			if len(got) != len(want) {
				t.Fatalf("%d octets, want %d\nours   %x\ntheirs %x", len(got), len(want), got, want)
			}
			listed := make([]bool, len(got))
			for _, d := range v.differs {
				if bytes.Equal(got[d.at:d.at+d.length], want[d.at:d.at+d.length]) {
					t.Errorf("octets %d to %d are the same after all (%s)", d.at, d.at+d.length-1, d.why)
				}
				for i := d.at; i < d.at+d.length; i++ {
					listed[i] = true
				}
			}
			for i := range got {
				if got[i] != want[i] && !listed[i] {
					t.Errorf("octet %d: %#02x, theirs %#02x\nours   %x\ntheirs %x", i, got[i], want[i], got, want)
					break
				}
			}
		})
	}
}

// through runs a frame, and what comes of it, until it is for nobody here; it
// returns the last packet without its Ethernet header.
func through(t *testing.T, c config.Config, frame []byte) []byte {
	t.Helper()
	key := model.Key{Interface: "n6"}
	adjacencies := []model.Adjacency{{Key: key, Out: "n6", MTU: 1500}}
	for _, p := range c.Policies {
		first := model.Key{NextHop: p.SegmentLists[0].Segments[0]}
		adjacencies = append(adjacencies, model.Adjacency{Key: first, Out: "n6", MTU: 1500})
	}
	m, err := model.New(model.Network{Config: c, Ports: []model.Port{{Name: "n6", Ifindex: 2}}, Adjacencies: adjacencies,
		Routes: []model.Route{{Prefix: prefix("::/0"), Via: []model.Key{key}}, {Prefix: prefix("0.0.0.0/0"), Via: []model.Key{key}}}})
	if err != nil {
		t.Fatal(err)
	}
	for hops := 0; hops < 4; hops++ {
		r := m.Run(frame, 2)
		if r.Reason == model.Passed && hops > 0 {
			return frame[14:]
		}
		if r.Reason != model.Forwarded {
			t.Fatalf("hop %d: %s", hops, r.Reason)
		}
		frame = r.Out
	}
	t.Fatal("it goes round")
	return nil
}

// capture reads the frames of a pcap file.
func capture(t *testing.T, name string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("testdata/vectors/%s.pcap", name))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	if len(data) < 24 || le.Uint32(data) != 0xa1b2c3d4 {
		t.Fatalf("%s: no little-endian pcap", name)
	}
	var frames [][]byte
	for data = data[24:]; len(data) >= 16; {
		n := int(le.Uint32(data[8:]))
		frames = append(frames, data[16:16+n])
		data = data[16+n:]
	}
	return frames
}
