package model

// maxExtensions is how many extension headers are walked.
const maxExtensions = 4

// chain is what follows an IPv6 header, as far as it was walked.
type chain struct {
	srh      int   // offset of the SRH in the packet; 0: none
	srhNamed int   // offset of the Next Header octet that names the SRH
	left     uint8 // Segments Left; 0 without SRH
	upper    uint8 // the upper layer's protocol
	at       int   // its offset
}

// fault is why a walk or a check ended: a drop, perhaps with an ICMPv6 error
// about the packet at hand.
type fault struct {
	reason     Reason
	kind, code uint8
	pointer    uint32
	reassemble bool
}

func plain(r Reason) *fault { return &fault{reason: r} }

func problem(r Reason, code uint8, pointer int) *fault {
	return &fault{reason: r, kind: parameterProblem, code: code, pointer: uint32(pointer)}
}

// fail turns a fault about the received packet into a Result.
func (j *journey) fail(f *fault) Result {
	switch {
	case f.reassemble:
		return j.reassemble()
	case f.kind == 0:
		return j.drop(f.reason)
	}
	return j.icmpError(f.reason, j.l3, f.kind, f.code, f.pointer)
}

// walk goes through the extension headers behind an IPv6 header (section 3) to
// the upper layer; a Fragment header ends it like one. stopAtSRH ends it at an
// SRH with segments left.
func walk(p []byte, stopAtSRH bool) (chain, *fault) {
	c := chain{at: 40, upper: v6(p).next()}
	named := 6
	for seen := 0; ; seen++ {
		if c.upper != protoHopByHop && c.upper != protoDestination && c.upper != protoRouting {
			return c, nil
		}
		if seen == maxExtensions || len(p) < c.at+8 {
			return c, plain(ExtensionChain)
		}
		length := 8 + 8*int(p[c.at+1])
		srh := c.upper == protoRouting && p[c.at+2] == 4
		switch {
		case len(p) < c.at+length && srh:
			return c, plain(SRHMalformed)
		case len(p) < c.at+length:
			return c, plain(ExtensionChain)
		case c.upper == protoRouting && !srh && p[c.at+3] != 0:
			return c, problem(RoutingType, 0, c.at+2)
		case srh && c.srh != 0:
			return c, plain(ExtensionChain)
		case srh:
			c.srh, c.srhNamed, c.left = c.at, named, p[c.at+3]
			if c.left > 0 && stopAtSRH {
				return c, nil
			}
		}
		named = c.at
		c.upper = p[c.at]
		c.at += length
	}
}

// walkToSegment is for behaviours that go on to the next segment where there is
// one.
func walkToSegment(p []byte) (chain, *fault) {
	c, f := walk(p, true)
	if f == nil && c.left == 0 && c.upper == protoFragment {
		f = &fault{reassemble: true}
	}
	return c, f
}

// walkToUpperLayer is for behaviours that take it: Segments Left must be what
// they want where there is an SRH, and there must be no Fragment header.
func walkToUpperLayer(p []byte, left uint8) (chain, *fault) {
	c, f := walk(p, false)
	switch {
	case f != nil:
		return c, f
	case c.srh != 0 && c.left != left:
		return c, problem(SegmentsLeft, 0, c.srh+3)
	case c.upper == protoFragment:
		return c, &fault{reassemble: true}
	}
	return c, nil
}

// checkSegments: Last Entry fits the header's length, and Segments Left is at
// most one past Last Entry.
func checkSegments(p []byte, c chain) *fault {
	extLen, lastEntry := int(p[c.srh+1]), int(p[c.srh+4])
	if 2*(lastEntry+1) > extLen || int(c.left) > lastEntry+1 {
		return problem(SegmentsLeft, 0, c.srh+3)
	}
	return nil
}

// segment is Segment List[i] of the SRH.
func segment(p []byte, c chain, i int) []byte {
	at := c.srh + 8 + 16*i
	return p[at : at+16]
}

// withoutSRH is a copy of a packet with its SRH removed.
func withoutSRH(p []byte, c chain) []byte {
	length := 8 + 8*int(p[c.srh+1])
	out := append([]byte{}, p[:c.srh]...)
	out[c.srhNamed] = p[c.srh]
	out = append(out, p[c.srh+length:]...)
	be.PutUint16(out[4:], uint16(len(out)-40))
	return out
}
