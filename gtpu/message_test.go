package gtpu

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/srv6"
)

func TestBuiltMessages(t *testing.T) {
	down := PDUSessionContainer{Type: srv6.ContainerDownlink, QFI: 5}
	build := func(b []byte, err error) []byte {
		if err != nil {
			t.Error(err)
		}
		return b
	}
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"the captures' G-PDU", build(AppendGPDU(nil, 0x123, down, of(tpdu))), gpdu},
		{"without a container", build(AppendGPDU(nil, 0x123, PDUSessionContainer{QFI: 5}, of("beef"))), "30 ff 0002 00000123 beef"},
		{"uplink, which has no RQI", build(AppendGPDU(nil, 1, PDUSessionContainer{Type: srv6.ContainerUplink, QFI: 9, RQI: true}, nil)),
			"34 ff 0008 00000001 0000 00 85 01 10 09 00"},
		{"downlink with RQI", build(AppendGPDU(nil, 1, PDUSessionContainer{Type: srv6.ContainerDownlink, QFI: 9, RQI: true}, nil)),
			"34 ff 0008 00000001 0000 00 85 01 00 49 00"},
		{"Echo Request", AppendEchoRequest(nil, 0xabcd), "32 01 0004 00000000 abcd 00 00"},
		{"Echo Response", AppendEchoResponse(nil, 0xabcd), "32 02 0006 00000000 abcd 00 00 0e 00"},
		{"End Marker", AppendEndMarker(nil, 0x123), "30 fe 0000 00000123"},
		{"Error Indication, IPv4", build(ErrorIndication{TEID: 0x123, Peer: netip.MustParseAddr("10.0.0.1"), UDPPort: 0x868}.Append(nil)),
			"36 1a 0014 00000000 0000 00 40 01 0868 00 10 00000123 85 0004 0a000001"},
		{"Error Indication, IPv6", build(ErrorIndication{TEID: 0x123, Peer: netip.MustParseAddr("2001:db8::1"), Sequence: 7}.Append(nil)),
			"32 1a 001c 00000000 0007 00 00 10 00000123 85 0010 20010db8000000000000000000000001"},
		{"two extension headers", build(Message{Type: GPDU, TEID: 1, Container: down, UDPPort: 0x868, HasSequence: true, Sequence: 2, Payload: of("beef")}.Append(nil)),
			"36 ff 000e 00000001 0002 00 85 01 00 05 40 01 0868 00 beef"},
	} {
		if !bytes.Equal(tt.got, of(tt.want)) {
			t.Errorf("%s: %x, want %s", tt.name, tt.got, tt.want)
		}
		if _, ok := ParseHeader(tt.got); !ok {
			t.Errorf("%s: refused when read", tt.name)
		}
	}
	if got := AppendEndMarker([]byte{0xaa}, 1); !bytes.Equal(got, of("aa 30 fe 0000 00000001")) {
		t.Errorf("appended to a byte: %x", got)
	}
}

func TestMessagesThatCannotBeBuilt(t *testing.T) {
	if got, err := AppendGPDU(nil, 1, PDUSessionContainer{Type: srv6.ContainerUplink, QFI: 64}, nil); err == nil {
		t.Errorf("QFI 64: %x", got)
	}
	if got, err := AppendGPDU(nil, 1, PDUSessionContainer{}, make([]byte, 65536)); err == nil {
		t.Errorf("65536 bytes: %d bytes", len(got))
	}
	if got, err := AppendGPDU(nil, 1, PDUSessionContainer{Type: srv6.ContainerUplink}, make([]byte, 65528)); err == nil {
		t.Errorf("65528 bytes with a container: %d bytes", len(got))
	}
	if got, err := AppendGPDU(nil, 1, PDUSessionContainer{}, make([]byte, 65535)); err != nil || len(got) != 65543 {
		t.Errorf("65535 bytes: %d bytes (%v)", len(got), err)
	}
	if got, err := (ErrorIndication{TEID: 1}).Append(nil); err == nil {
		t.Errorf("no peer: %x", got)
	}
}

func TestParseErrorIndication(t *testing.T) {
	for _, e := range []ErrorIndication{
		{TEID: 0x123, Peer: netip.MustParseAddr("10.0.0.1"), UDPPort: 40000},
		{TEID: 0xffffffff, Peer: netip.MustParseAddr("2001:db8::1"), Sequence: 9},
	} {
		b, err := e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		h, _ := ParseHeader(b)
		if got, ok := ParseErrorIndication(h); !ok || got != e {
			t.Errorf("read %+v (%v), want %+v", got, ok, e)
		}
	}
	const head, teid, peer = "32 1a 00LL 00000000 0000 00 00", "10 00000123", "85 0004 0a000001"
	for name, elements := range map[string]string{
		"none":                    "",
		"no peer":                 teid,
		"no TEID":                 peer,
		"TEID cut short":          "10 000001",
		"peer cut short":          teid + "85 0004 0a0000",
		"peer of three octets":    teid + "85 0003 0a0000",
		"length cut short":        teid + "85 00",
		"an unknown fixed length": "7f 00" + teid + peer,
	} {
		text := strings.Replace(head, "LL", fmt.Sprintf("%02x", len(of(elements))+4), 1) + elements
		if got, ok := ParseErrorIndication(mustParse(t, text)); ok {
			t.Errorf("%s: read %+v", name, got)
		}
	}
	// Elements that we do not know are skipped by their length.
	text := strings.Replace(head, "LL", fmt.Sprintf("%02x", 4+6+5+7), 1) + "ff 0003 00000a" + teid + peer
	if got, ok := ParseErrorIndication(mustParse(t, text)); !ok || got.TEID != 0x123 {
		t.Errorf("private extension: %+v (%v)", got, ok)
	}
	if got, ok := ParseErrorIndication(mustParse(t, gpdu)); ok {
		t.Errorf("a G-PDU is %+v", got)
	}
}
