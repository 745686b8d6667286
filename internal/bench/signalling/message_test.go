package signalling

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/smf/replay"
)

// TestCapture: what is sent is what Open5GS's SMF sent, octet by octet, with its numbers.
func TestCapture(t *testing.T) {
	c, err := replay.Open("open5gs")
	if err != nil {
		t.Fatal(err)
	}
	handovers, idles := 0, 0
	for _, m := range c.Messages {
		if m.Kind != modificationRequest {
			continue
		}
		got := m.Data
		seid, sequence := binary.BigEndian.Uint64(got[seidAt:]), binary.BigEndian.Uint32(got[sequenceAt:])>>8
		switch len(got) {
		case len(forward):
			gnb := netip.AddrFrom4([4]byte(got[tunnelAt+4:]))
			if want := ToForward(nil, seid, sequence, binary.BigEndian.Uint32(got[tunnelAt:]), gnb); !bytes.Equal(got, want) {
				t.Errorf("Open5GS sent %x, we send %x", got, want)
			}
			handovers++
		case len(idle):
			if want := toRequest(nil, idle, seid, sequence); !bytes.Equal(got, want) {
				t.Errorf("Open5GS sent %x, we send %x", got, want)
			}
			idles++
		}
	}
	if handovers == 0 || idles == 0 {
		t.Errorf("the capture has %d requests to forward and %d to buffer that are as long as ours", handovers, idles)
	}
}

func TestParseAnswer(t *testing.T) {
	good := decode("21350011 0000000000000d92 000007 00 0013000101")
	if a, ok := ParseAnswer(good); !ok || a != (Answer{SEID: 0xd92, Sequence: 7, Cause: 1}) {
		t.Errorf("%x is %+v, %v", good, a, ok)
	}
	// A message priority, and another IE before the Cause (from free5GC's UPF).
	if a, ok := ParseAnswer(decode("23350016 0000000000000d92 000007 c0 003c00010a 0013000140")); !ok || a.Cause != 64 {
		t.Errorf("with a priority: %+v, %v", a, ok)
	}
	for name, change := range map[string]func([]byte) []byte{
		"a deletion's":          func(b []byte) []byte { b[1] = 55; return b },
		"without SEID":          func(b []byte) []byte { b[0] = 0x20; return b },
		"too short":             func(b []byte) []byte { return b[:len(b)-1] },
		"longer than said":      func(b []byte) []byte { return append(b, 0) },
		"an IE too long":        func(b []byte) []byte { b[19] = 2; return b },
		"without a Cause":       func(b []byte) []byte { b[17] = 20; return b },
		"a Cause of 0":          func(b []byte) []byte { b[3], b[19] = 16, 0; return b[:20] },
		"only half of a header": func(b []byte) []byte { return b[:8] },
	} {
		if a, ok := ParseAnswer(change(bytes.Clone(good))); ok {
			t.Errorf("%s: taken as %+v", name, a)
		}
	}
}
