package kerneltest

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// field is a part of a packet that differs, and may.
type field string

const (
	forwarded      field = "forwarded or not"
	outerClass     field = "outer traffic class"
	outerFlowLabel field = "outer flow label"
	outerHopLimit  field = "outer hop limit"
	nextHopLimit   field = "hop limit of the IPv6 packet that was pushed upon"
	innerClass     field = "inner traffic class or TOS"
	innerHopLimit  field = "inner hop limit or TTL, with the IPv4 checksum"
	everythingElse field = "anything else"
)

// difference is one that is known: which field, for which frames, and the text
// that decides for the data path.
type difference struct {
	field field
	when  string // a part of the frames' names; "" is all of them
	why   string
}

// split sorts the octets of a packet, from its IP header on, by field.
func split(p []byte) map[field][]byte {
	parts := map[field][]byte{}
	rest := append([]byte{}, p...)
	take := func(f field, at int, mask ...byte) {
		for i, m := range mask {
			parts[f] = append(parts[f], rest[at+i]&m)
			rest[at+i] &^= m
		}
	}
	if outerOfTwo(p) {
		take(outerClass, 0, 0x0f, 0xf0)
		take(outerFlowLabel, 1, 0x0f, 0xff, 0xff)
		take(outerHopLimit, 7, 0xff)
	}
	if next, at := upper(p); p[0]>>4 == 6 && next == 41 && outerOfTwo(p[at:]) {
		take(nextHopLimit, at+7, 0xff)
	}
	if at, ok := inner(p); ok && p[at]>>4 == 4 {
		take(innerClass, at+1, 0xff)
		take(innerHopLimit, at+8, 0xff)
		take(innerHopLimit, at+10, 0xff, 0xff) // follows from both
	} else if ok {
		take(innerClass, at, 0x0f, 0xf0)
		take(innerHopLimit, at+7, 0xff)
	}
	parts[everythingElse] = rest
	return parts
}

// outerOfTwo says that a packet carries another one, or a frame.
func outerOfTwo(p []byte) bool {
	next, _ := upper(p)
	return p[0]>>4 == 6 && (next == 4 || next == 41 || next == 143)
}

// upper skips the SRHs behind an IPv6 header.
func upper(p []byte) (next byte, at int) {
	if p[0]>>4 != 6 {
		return 0, 0
	}
	next, at = p[6], 40
	for next == 43 && at+2 <= len(p) {
		next, at = p[at], at+8+8*int(p[at+1])
	}
	return next, at
}

// inner is where the innermost IP packet begins: the packet itself unless it
// carries another. An Ethernet frame inside is nothing that has hops.
func inner(p []byte) (at int, ok bool) {
	for p[at]>>4 == 6 {
		next, behind := upper(p[at:])
		switch next {
		case 4, 41:
			at += behind
		case 143:
			return 0, false
		default:
			return at, true
		}
	}
	return at, true
}

// differ returns the fields by which two packets differ; nil is a packet that
// was not forwarded.
func differ(a, b []byte) (fields []field) {
	if a == nil && b == nil {
		return nil
	}
	if a == nil || b == nil {
		return []field{forwarded}
	}
	x, y := split(a), split(b)
	for _, f := range []field{outerClass, outerFlowLabel, outerHopLimit, nextHopLimit, innerClass, innerHopLimit, everythingElse} {
		if string(x[f]) != string(y[f]) {
			fields = append(fields, f)
		}
	}
	return fields
}

// judge compares what came out, and marks the known differences that it met.
func judge(t *testing.T, name string, known []difference, met map[int]bool, kernel, culvert []byte) {
	t.Helper()
	for _, f := range differ(kernel, culvert) {
		listed := false
		for i, d := range known {
			if d.field == f && strings.Contains(name, d.when) {
				met[i], listed = true, true
			}
		}
		if !listed {
			t.Errorf("%s: %s differs\nkernel  %s\nculvert %s", name, f, dump(kernel), dump(culvert))
		}
	}
}

func dump(p []byte) string {
	if p == nil {
		return "(nothing)"
	}
	return fmt.Sprintf("%x", p)
}

// TestDiffer sees that no octet of a packet escapes the comparison.
func TestDiffer(t *testing.T) {
	for _, f := range outerFrames("fc00:a:1::", []string{"fc00:b::1"}, 0) {
		p := f.packet
		for i := range p {
			q := append([]byte{}, p...)
			q[i] ^= 1
			if i != 0 && i != 6 && len(differ(p, q)) == 0 {
				t.Errorf("%s: a change of octet %d of %d is not seen", f.name, i, len(p))
			}
		}
		if got := differ(p, nil); len(got) != 1 || got[0] != forwarded {
			t.Errorf("%s: nothing in its place differs by %v", f.name, got)
		}
	}
	p := outerFrames("fc00:a:1::", nil, 0)[0].packet
	q := append([]byte{}, p...)
	q[7]--
	if got := differ(p, q); len(got) != 1 || got[0] != outerHopLimit {
		t.Errorf("another hop limit differs by %v", got)
	}
	if length := binary.BigEndian.Uint16(p[4:]); int(length)+40 != len(p) {
		t.Errorf("payload length %d of %d octets", length, len(p)-40)
	}
}
