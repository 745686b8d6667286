package frame_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/frame"
)

const (
	eth6 = "020000000002 020000000001 86dd "
	eth4 = "020000000002 020000000001 0800 "
	ends = "20010db8000000000000000000000001 20010db8000000000000000000000002 "
)

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecode(t *testing.T) {
	const macs = "02:00:00:00:00:01 > 02:00:00:00:00:02"
	const addresses = "IPv6 2001:db8::1 > 2001:db8::2 hop 63"
	for _, c := range []struct{ name, hex, want string }{
		{"empty", "", ""},
		{"short", "0102", "short frame (2 bytes)"},
		{"ARP", "ffffffffffff 020000000001 0806 0001", "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff | ARP"},
		{"QinQ", "020000000002 020000000001 88a8 0064 8100 2007 9999", macs + " vlan 100 vlan 7 | EtherType 0x9999"},
		{"UDP over IPv4", eth4 + "45b8 001c 0000 0000 40 11 0000 0a000001 0a000002 c000 0035 0008 0000",
			macs + " | IPv4 10.0.0.1 > 10.0.0.2 ttl 64 dscp 46 | UDP 49152 > 53"},
		{"IPv4 fragment", eth4 + "4500 001c 0000 2001 40 11 0000 0a000001 0a000002 c000 0035 0008 0000",
			macs + " | IPv4 10.0.0.1 > 10.0.0.2 ttl 64 | fragment at 8, more follow"},
		{"broken IPv4", eth4 + "4400 001c", macs + " | broken IPv4 (4 bytes)"},
		{"SRH", eth6 + "63e12345 0030 2b 3f" + ends +
			"29 04 04 01 01 00 0008 20010db8000000000000000000000003 20010db8000000000000000000000002" + "60000000 0000 3b 40",
			macs + " | " + addresses + " dscp 15 ecn ECT(0) label 0x12345 | SRH [2001:db8::3, 2001:db8::2] sl 1 tag 0x8 | broken IPv6 (8 bytes)"},
		{"other routing type", eth6 + "60000000 0008 2b 3f" + ends + "3b 00 02 01 00000000",
			macs + " | " + addresses + " label 0x00000 | Routing type 2, Segments Left 1 | no next header"},
		{"ICMPv6 behind extensions", eth6 + "60000000 0018 00 3f" + ends + "3c 00 010400000000 3a 00 010400000000 04 04 0000 00000000",
			macs + " | " + addresses + " label 0x00000 | Hop-by-Hop | Destination Options | ICMPv6 parameter problem code 4"},
		{"IPv6 first fragment", eth6 + "60000000 0010 2c 3f" + ends + "06 00 0001 00000001 1234 0050 00000000",
			macs + " | " + addresses + " label 0x00000 | fragment at 0, more follow | TCP 4660 > 80"},
		{"extension cut short", eth6 + "60000000 0008 3c 3f" + ends + "3a 01 0104",
			macs + " | " + addresses + " label 0x00000 | extension header cut short (4 bytes)"},
		{"Ethernet inside", eth6 + "60000000 000e 8f 3f" + ends + "020000000004 020000000003 0806",
			macs + " | " + addresses + " label 0x00000 | 02:00:00:00:00:03 > 02:00:00:00:00:04 | ARP"},
		{"broken GTP-U", eth6 + "60000000 0010 11 3f" + ends + "c000 0868 0010 0000 5000000000000000",
			macs + " | " + addresses + " label 0x00000 | UDP 49152 > 2152 | broken GTP-U (8 bytes)"},
		{"End Marker", eth6 + "60000000 0010 11 3f" + ends + "c000 0868 0010 0000 30fe000000000123",
			macs + " | " + addresses + " label 0x00000 | UDP 49152 > 2152 | GTP-U End Marker teid 0x123"},
		{"Echo Request", eth6 + "60000000 0014 11 3f" + ends + "c000 0868 0014 0000 3201000400000000 00070000",
			macs + " | " + addresses + " label 0x00000 | UDP 49152 > 2152 | GTP-U Echo Request teid 0x0 seq 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := frame.Decode(bytesOf(t, c.hex)).String(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestGPDU(t *testing.T) {
	f := frame.Decode(apitest.GPDU(0x123))
	const want = "GTP-U G-PDU teid 0x123 uplink qfi 5 | IPv4 10.45.0.1 > 198.51.100.9 ttl 64 | UDP 49152 > 53"
	if !strings.HasSuffix(f.String(), want) {
		t.Errorf("got %s\nwant %s", f, want)
	}
	if !slices.Equal(f.TEIDs, []uint32{0x123}) {
		t.Errorf("TEIDs %x", f.TEIDs)
	}
}

// A trace holds the beginning of a frame: lengths in it are beyond its end.
func TestCut(t *testing.T) {
	whole := apitest.GPDU(0x123)
	for n := range len(whole) {
		f := frame.Decode(whole[:n])
		if n > 14+40+8+8+4+4 && !slices.Equal(f.TEIDs, []uint32{0x123}) {
			t.Errorf("%d of %d bytes: TEIDs %x in %s", n, len(whole), f.TEIDs, f)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(apitest.GPDU(1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if whole := frame.Decode(b); len(b) > 0 && len(whole.Layers) == 0 {
			t.Error("nothing was found")
		}
	})
}
