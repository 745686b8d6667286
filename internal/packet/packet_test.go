package packet_test

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/packet"
)

func octets(s string) string { return strings.Join(strings.Fields(s), "") }

// The expected octets are those of a capture of another implementation
// (internal/model/testdata/vectors, h_m_gtp4_d, frame 5).
const gtpu = `ffffffffffff 000000000000 0800
	4500 0048 0001 0000 40 11 663e 0a000002 0a630002
	0868 0868 0034 9d84
	34 ff 0024 00000123 0000 00 85 01 00 05 00
	4500 001c 0001 0000 40 01 65dd 0a000002 0a000102
	08 00 f7ff 0000 0000`

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestFrame(t *testing.T) {
	got := packet.Frame(
		packet.Ethernet{Dst: packet.Hex{255, 255, 255, 255, 255, 255}, Src: make(packet.Hex, 6)},
		packet.IPv4{Src: ip("10.0.0.2"), Dst: ip("10.99.0.2"), ID: 1},
		packet.UDP{Sport: 2152, Dport: 2152},
		packet.GTPU{TEID: 0x123, Container: &packet.PDUSession{QFI: 5}},
		packet.IPv4{Src: ip("10.0.0.2"), Dst: ip("10.0.1.2"), ID: 1},
		packet.ICMP{Type: 8})
	if hex.EncodeToString(got) != octets(gtpu) {
		t.Errorf("\ngot  %x\nwant %s", got, octets(gtpu))
	}
}

// An SRH's last segment is what a UDP checksum is made for (RFC 8200 section
// 8.1): the sum over the pseudo-header with it, and all of UDP, is 0xffff.
func TestChecksumIsForTheLastSegment(t *testing.T) {
	last := ip("2001:db8:9::9")
	got := packet.Frame(
		packet.IPv6{Src: ip("2001:db8::1"), Dst: ip("2001:db8:8::8")},
		packet.SRH{Segments: []netip.Addr{last, ip("2001:db8:8::8")}},
		packet.UDP{Sport: 1, Dport: 2},
		packet.Payload{Count: 3})
	udp := got[40+40:]
	sum := uint32(17 + len(udp))
	for _, b := range [][]byte{ip("2001:db8::1").AsSlice(), last.AsSlice(), udp} {
		for i, octet := range b {
			sum += uint32(octet) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum != 0xffff {
		t.Errorf("sum %#x, want 0xffff", sum)
	}
	if got[6] != 43 || got[40] != 17 || got[40+3] != 1 || got[40+4] != 1 || got[40+1] != 4 {
		t.Errorf("SRH % x behind next header %d", got[40:48], got[6])
	}
}
