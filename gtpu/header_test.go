package gtpu

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/srv6"
)

// of reads bytes that are written with spaces.
func of(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// tpdu is an Echo Request of ICMP in IPv4, 28 bytes long.
const tpdu = "4500001c00010000 40 01 667a 0a000002 0a630002 0800f7ff00000000"

// gpdu is the G-PDU of the captures: TEID 0x123, QFI 5 in a downlink container.
const gpdu = "34 ff 0024 00000123 0000 00 85 01 00 05 00" + tpdu

func mustParse(t *testing.T, text string) Header {
	t.Helper()
	h, ok := ParseHeader(of(text))
	if !ok {
		t.Fatalf("%s was refused", text)
	}
	return h
}

func TestGPDU(t *testing.T) {
	h := mustParse(t, gpdu)
	if h.Type() != GPDU || h.TEID() != 0x123 || h.Flags() != 0x34 || !bytes.Equal(h.Payload(), of(tpdu)) {
		t.Errorf("%v, TEID %#x, flags %#x, payload %x", h.Type(), h.TEID(), h.Flags(), h.Payload())
	}
	if _, ok := h.Sequence(); ok {
		t.Error("has a sequence number")
	}
	if _, ok := h.NPDU(); ok {
		t.Error("has an N-PDU number")
	}
	want := PDUSessionContainer{Type: srv6.ContainerDownlink, QFI: 5}
	if got, ok := h.Container(); !ok || got != want {
		t.Errorf("container is %+v (%v), want %+v", got, ok, want)
	}
	h.SetTEID(0xfedcba98)
	if !bytes.Equal(h[:8], of("34 ff 0024 fedcba98")) {
		t.Errorf("header is %x", []byte(h[:8]))
	}
}

func TestOptionalFields(t *testing.T) {
	for _, tt := range []struct {
		text     string
		sequence int // -1: none
		npdu     int
		payload  string
	}{
		{"30 ff 0002 00000001 beef", -1, -1, "beef"},
		// Any flag brings all four octets; those without a flag mean nothing.
		{"32 ff 0006 00000001 1234 56 85 beef", 0x1234, -1, "beef"},
		{"31 ff 0006 00000001 1234 56 85 beef", -1, 0x56, "beef"},
		{"33 ff 0004 00000001 1234 56 85", 0x1234, 0x56, ""},
		{"34 ff 0004 00000001 1234 56 00", -1, -1, ""},
		// What is behind the length is cut off.
		{"30 ff 0000 00000001 beef", -1, -1, ""},
		// The spare bit is not looked at.
		{"38 ff 0002 00000001 beef", -1, -1, "beef"},
	} {
		h := mustParse(t, tt.text)
		if s, ok := h.Sequence(); ok != (tt.sequence >= 0) || ok && int(s) != tt.sequence {
			t.Errorf("%s: sequence %#x (%v)", tt.text, s, ok)
		}
		if n, ok := h.NPDU(); ok != (tt.npdu >= 0) || ok && int(n) != tt.npdu {
			t.Errorf("%s: N-PDU %#x (%v)", tt.text, n, ok)
		}
		if !bytes.Equal(h.Payload(), of(tt.payload)) {
			t.Errorf("%s: payload %x", tt.text, h.Payload())
		}
	}
}

func TestExtensionChain(t *testing.T) {
	// UDP port, a RAN container of 8 octets, two PDU Session Containers.
	h := mustParse(t, "34 ff 001a 00000001 0000 00 40"+
		"01 0868 81"+"02 010203040506 85"+"01 0041 85"+"01 1049 00"+"beef")
	var got []string
	for typ, content := range h.Extensions() {
		got = append(got, hex.EncodeToString(append([]byte{byte(typ)}, content...)))
	}
	const want = "400868 81010203040506 850041 851049"
	if strings.Join(got, " ") != want {
		t.Errorf("chain is %v, want %s", got, want)
	}
	if !bytes.Equal(h.Payload(), of("beef")) {
		t.Errorf("payload is %x", h.Payload())
	}
	// The last container counts; R is not an uplink container's.
	if c, ok := h.Container(); !ok || c != (PDUSessionContainer{Type: srv6.ContainerUplink, QFI: 9}) {
		t.Errorf("container is %+v (%v)", c, ok)
	}
	for range h.Extensions() {
		break // a loop that ends early must not go on
	}
}

func TestContainers(t *testing.T) {
	for text, want := range map[string]PDUSessionContainer{
		"0005":             {Type: srv6.ContainerDownlink, QFI: 5},
		"0049":             {Type: srv6.ContainerDownlink, QFI: 9, RQI: true},
		"00ff":             {Type: srv6.ContainerDownlink, QFI: 63, RQI: true},
		"1005":             {Type: srv6.ContainerUplink, QFI: 5},
		"1045":             {Type: srv6.ContainerUplink, QFI: 5},
		"0f85e0000000":     {Type: srv6.ContainerDownlink, QFI: 5},
		"1f00000000000000": {Type: srv6.ContainerUplink},
	} {
		if got, ok := ParsePDUSessionContainer(of(text)); !ok || got != want {
			t.Errorf("%s is %+v (%v), want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "00", "2005", "f005"} {
		if got, ok := ParsePDUSessionContainer(of(text)); ok {
			t.Errorf("%s is %+v", text, got)
		}
	}
	// One of another type leaves an earlier one standing.
	h := mustParse(t, "34 ff 000c 00000001 0000 00 85 01 0005 85 01 2009 00")
	if c, ok := h.Container(); !ok || c.QFI != 5 {
		t.Errorf("container is %+v (%v)", c, ok)
	}
	if c, ok := mustParse(t, "34 ff 0008 00000001 0000 00 85 01 2009 00").Container(); ok {
		t.Errorf("container is %+v", c)
	}
}

func TestNotUnderstood(t *testing.T) {
	for _, tt := range []struct {
		chain string
		want  ExtensionType
	}{
		{"85 01 0005 00", 0},
		{"c0 01 0005 00", 0},
		{"03 01 0005 00", 0},
		{"81 01 0005 84 01 0000 00", 0},
		{"86 01 0005 00", 0x86},
		{"85 01 0005 c1 01 0000 00", 0xc1},
	} {
		length := hex.EncodeToString([]byte{byte(len(of(tt.chain)) + 3)})
		h := mustParse(t, "34 ff 00"+length+"00000001 0000 00"+tt.chain)
		if got, found := h.NotUnderstood(); got != tt.want || found != (tt.want != 0) {
			t.Errorf("%s: %#x (%v), want %#x", tt.chain, got, found, tt.want)
		}
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"nothing":                   func([]byte) []byte { return nil },
		"cut in its header":         func(b []byte) []byte { return b[:7] },
		"cut in its payload":        func(b []byte) []byte { return b[:len(b)-1] },
		"version 2":                 func(b []byte) []byte { b[0] = 0x54; return b },
		"version 0":                 func(b []byte) []byte { b[0] = 0x14; return b },
		"GTP'":                      func(b []byte) []byte { b[0] = 0x24; return b },
		"length beyond the packet":  func(b []byte) []byte { b[3]++; return b },
		"length before the options": func(b []byte) []byte { b[3] = 3; return b },
		"length in the chain":       func(b []byte) []byte { b[3] = 7; return b },
		"chain begins at the end":   func(b []byte) []byte { b[3] = 4; return b },
		"extension of length 0":     func(b []byte) []byte { b[12] = 0; return b },
		"extension past the end":    func(b []byte) []byte { b[12] = 9; return b },
		"another past the end":      func(b []byte) []byte { b[15] = 0x85; return b },
	} {
		if h, ok := ParseHeader(change(of(gpdu))); ok {
			t.Errorf("%s: took %x", name, []byte(h))
		}
	}
	eight := "34 ff 0024 00000001 0000 00 20" + strings.Repeat("01 0000 20", 7) + "01 0000 00"
	mustParse(t, eight)
	nine := "34 ff 0028 00000001 0000 00 20" + strings.Repeat("01 0000 20", 8) + "01 0000 00"
	if _, ok := ParseHeader(of(nine)); ok {
		t.Error("nine extension headers were taken")
	}
}

func TestNamesOfMessages(t *testing.T) {
	for typ, want := range map[MessageType]string{
		1: "Echo Request", 2: "Echo Response", 26: "Error Indication",
		31: "Supported Extension Headers Notification", 254: "End Marker", 255: "G-PDU", 7: "message type 7",
	} {
		if got := typ.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(typ), got, want)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(of(gpdu))
	f.Add(of("34 ff 0018 00000001 0000 00 40 01 0868 81 02 010203040506 85 01 1049 00 beef"))
	f.Add(of("36 1a 0014 00000000 0000 00 40 01 0868 00 10 00000123 85 0004 0a000001"))
	f.Add(of("32 02 0006 00000000 abcd 00 00 0e 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := ParseHeader(b)
		if !ok {
			return
		}
		// Header, options, extension headers and payload are all there is.
		sum := headerLength + len(h.Payload())
		if h.hasOptional() {
			sum += optionalLength
		}
		for _, content := range h.Extensions() {
			sum += 2 + len(content)
		}
		if sum != len(h) || len(h) > len(b) {
			t.Errorf("%x: parts add up to %d of %d", b, sum, len(h))
		}
		if c, ok := h.Container(); ok {
			again, err := AppendGPDU(nil, h.TEID(), c, h.Payload())
			back, parsed := ParseHeader(again)
			if len(h) > 0xfff0 {
				return
			}
			if got, _ := back.Container(); err != nil || !parsed || got != c {
				t.Errorf("%+v built again is %+v (%v)", c, got, err)
			}
		}
		h.Sequence()
		h.NPDU()
		h.NotUnderstood()
		if e, ok := ParseErrorIndication(h); ok {
			again, err := e.Append(nil)
			back, parsed := ParseHeader(again)
			if err != nil || !parsed {
				t.Fatalf("%+v built again is %x (%v)", e, again, err)
			}
			if got, ok := ParseErrorIndication(back); !ok || got.TEID != e.TEID || got.Peer != e.Peer.Unmap() {
				t.Errorf("%+v built again is %+v (%v)", e, got, ok)
			}
		}
	})
}
