package srv6

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// of reads bytes that are written with spaces.
func of(text string) []byte {
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(text))
	if err != nil {
		panic(err)
	}
	return b
}

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

const (
	seg1 = "20010db8000e00000000000000000001"
	seg0 = "20010db8000f00000000000000000001"
)

func TestAppendSRH(t *testing.T) {
	path := addrs("2001:db8:e::1", "2001:db8:f::1")
	for _, tt := range []struct {
		name    string
		path    []netip.Addr
		reduced bool
		want    string
	}{
		{"full", path, false, "04 04 04 01 01 00 0000" + seg0 + seg1},
		{"reduced", path, true, "04 02 04 01 00 00 0000" + seg0},
		{"one segment", path[1:], false, "04 02 04 00 00 00 0000" + seg0},
		{"one segment, reduced", path[1:], true, ""},
	} {
		got, err := AppendSRH([]byte{0xaa}, NextHeaderIPv4, tt.path, tt.reduced)
		if err != nil || !bytes.Equal(got, append([]byte{0xaa}, of(tt.want)...)) {
			t.Errorf("%s: %x (%v), want aa %s", tt.name, got, err, tt.want)
		}
	}
	for name, path := range map[string][]netip.Addr{
		"empty":           nil,
		"128 segments":    slices.Repeat(path, 64),
		"an IPv4 segment": addrs("2001:db8::1", "192.0.2.1"),
		"an unset one":    {netip.Addr{}},
	} {
		if got, err := AppendSRH(nil, NextHeaderIPv6, path, false); err == nil {
			t.Errorf("%s: %x", name, got)
		}
	}
	if got, err := AppendSRH(nil, NextHeaderIPv6, nil, true); err == nil {
		t.Errorf("empty, reduced: %x", got)
	}
	long, err := AppendSRH(nil, NextHeaderIPv6, slices.Repeat(path, 64)[:127], false)
	if h, ok := ParseSRH(long); err != nil || !ok || len(h) != 8+127*16 || h.LastEntry() != 126 {
		t.Errorf("127 segments: %d bytes (%v, %v)", len(long), err, ok)
	}
}

func TestSRHView(t *testing.T) {
	// Two segments, an HMAC-less Pad TLV of 8 bytes, and payload behind.
	b := of("29 05 04 01 01 80 0004" + seg0 + seg1 + "04 06 000000000000" + "6000")
	h, ok := ParseSRH(b)
	if !ok {
		t.Fatal("refused")
	}
	if len(h) != 48 || h.NextHeader() != NextHeaderIPv6 || h.SegmentsLeft() != 1 || h.LastEntry() != 1 ||
		h.Flags() != 0x80 || h.Tag() != TagEchoRequest {
		t.Errorf("read %d bytes, next header %d, SL %d, last entry %d, flags %#x, tag %#x", len(h),
			h.NextHeader(), h.SegmentsLeft(), h.LastEntry(), h.Flags(), h.Tag())
	}
	if want := addrs("2001:db8:f::1", "2001:db8:e::1"); !slices.Equal(h.SegmentList(), want) {
		t.Errorf("segments are %v, want %v", h.SegmentList(), want)
	}
	if !bytes.Equal(h.TLVs(), of("0406000000000000")) {
		t.Errorf("TLVs are %x", h.TLVs())
	}
	for _, i := range []int{-1, 2} {
		if s, ok := h.Segment(i); ok {
			t.Errorf("Segment(%d) is %v", i, s)
		}
	}
	h.SetSegmentsLeft(0)
	h.SetTag(TagEndMarker)
	if !bytes.Equal(b[:8], of("29 05 04 00 01 80 0001")) {
		t.Errorf("the packet begins with %x", b[:8])
	}
}

func TestParseSRHRefuses(t *testing.T) {
	good := of("04 04 04 01 01 00 0000" + seg0 + seg1)
	for name, change := range map[string]func([]byte) []byte{
		"nothing":             func([]byte) []byte { return nil },
		"cut in its header":   func(b []byte) []byte { return b[:7] },
		"cut in a segment":    func(b []byte) []byte { return b[:39] },
		"another type":        func(b []byte) []byte { b[2] = 2; return b },
		"too many segments":   func(b []byte) []byte { b[4] = 2; return b },
		"no segment fits":     func(b []byte) []byte { b[1], b[4] = 0, 0; return b },
		"half a segment fits": func(b []byte) []byte { b[1], b[4] = 1, 0; return b },
		"255 segments":        func(b []byte) []byte { b[4] = 255; return b },
	} {
		if h, ok := ParseSRH(change(bytes.Clone(good))); ok {
			t.Errorf("%s: took %x", name, []byte(h))
		}
	}
	if _, ok := ParseSRH(good); !ok {
		t.Error("the unchanged one was refused")
	}
}

func FuzzParseSRH(f *testing.F) {
	f.Add(of("04 04 04 01 01 00 0000" + seg0 + seg1))
	f.Add(of("29 05 04 01 01 80 0004" + seg0 + seg1 + "0406000000000000"))
	f.Add(of("04 00 04 00 00 00 0000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := ParseSRH(b)
		if !ok {
			return
		}
		if len(h.SegmentList())*segmentLength+len(h.TLVs())+srhFixedLength != len(h) || len(h) > len(b) {
			t.Errorf("parts do not add up to %d of %d bytes", len(h), len(b))
		}
		path := h.SegmentList()
		slices.Reverse(path)
		again, err := AppendSRH(nil, h.NextHeader(), path, false)
		if len(path) > 127 {
			return
		}
		back, ok := ParseSRH(again)
		if err != nil || !ok || !slices.Equal(back.SegmentList(), h.SegmentList()) {
			t.Errorf("%x built again is %x (%v)", []byte(h), again, err)
		}
	})
}
