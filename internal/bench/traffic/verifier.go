package traffic

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
)

// mostFaults are described in words.
const mostFaults = 8

// What can be wrong with a packet that came out: the keys of
// Outcome.Corruption.
const (
	WrongLength   = "length"   // of the frame, or in a header
	WrongHeader   = "header"   // not what is expected
	WrongNumber   = "number"   // the TEID, address or port of another packet
	WrongTag      = "tag"      // or the packet was cut
	WrongChecksum = "checksum" // seen in packets that are checked whole only
)

// verifier looks at the frames that the receiver shows.
type verifier struct {
	expect  trafficrun.Expect
	counts  trafficrun.Counts
	checked uint64
	found   map[string]uint64 // that the receiver did not see
	faults  []string
	err     error
}

func newVerifier(j trafficrun.Job) *verifier {
	return &verifier{expect: j.Expect, found: map[string]uint64{}}
}

// see takes a frame: a wrong one to say what is wrong with it, a right one to
// look at what the receiver does not.
func (v *verifier) see(s trafficrun.Shown) {
	switch s.Wrong {
	case trafficrun.Right:
		if s.Length != len(s.Data) { // of longer ones the end is not shown
			return
		}
		v.checked++
		if err := verify(s.Data); err != nil {
			kind := WrongLength
			if _, ok := errors.AsType[checksumError](err); ok {
				kind = WrongChecksum
			}
			v.found[kind]++
			v.say(s, err.Error())
		}
	case trafficrun.Length:
		v.say(s, fmt.Sprintf("the frame has %d octets, want %d", s.Length, v.expect.Lengths[s.Size]))
	case trafficrun.Header:
		v.say(s, v.difference(s.Data))
	case trafficrun.Number:
		text := "a number is that of another packet:"
		for _, p := range v.expect.Places {
			if int(p.Offset)+4 <= len(s.Data) {
				text += fmt.Sprintf(" octets %d to %d are %#08x, the first packet's %#08x;", p.Offset, p.Offset+3, be.Uint32(s.Data[p.Offset:]), p.Base)
			}
		}
		v.say(s, text)
	case trafficrun.Unreadable:
		v.say(s, "the tag is hurt, or cut off")
	default:
		where := "came out"
		if s.Returned {
			where = "came back to the sending interface"
		}
		v.say(s, fmt.Sprintf("a packet that nobody sent %s: %s", where, summary(s.Data)))
	}
}

func (v *verifier) say(s trafficrun.Shown, what string) {
	if len(v.faults) >= mostFaults {
		return
	}
	if s.Wrong != trafficrun.Unreadable && s.Wrong != trafficrun.Unexpected {
		what = fmt.Sprintf("packet %d of stream %d: %s", s.Sequence, s.Stream, what)
	}
	v.faults = append(v.faults, fmt.Sprintf("%s: %x", what, s.Data))
}

// difference names the first octets that are not as expected.
func (v *verifier) difference(data []byte) string {
	for i, want := range v.expect.Want {
		if i >= len(data) {
			return fmt.Sprintf("the frame ends in its headers, at octet %d", len(data))
		}
		if mask := v.expect.Mask[i]; (data[i]^want)&mask != 0 {
			return fmt.Sprintf("octet %d is %#02x, want %#02x", i, data[i]&mask, want&mask)
		}
	}
	return "the headers are not as expected"
}

// corruption counts what was wrong, by whoever saw it.
func (v *verifier) corruption() (map[string]uint64, uint64) {
	all := maps.Clone(v.found)
	for kind, wrong := range map[string]trafficrun.Wrong{
		WrongLength: trafficrun.Length, WrongHeader: trafficrun.Header, WrongNumber: trafficrun.Number, WrongTag: trafficrun.Unreadable,
	} {
		all[kind] += v.counts.Wrong[wrong]
	}
	sum := uint64(0)
	for _, n := range all {
		sum += n
	}
	maps.DeleteFunc(all, func(_ string, n uint64) bool { return n == 0 })
	return all, sum
}

// summary names a frame's layers, and what an ICMP message says.
func summary(frame []byte) string {
	var names []string
	for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy).Layers() {
		switch l := l.(type) {
		case *layers.ICMPv4:
			names = append(names, "ICMP "+l.TypeCode.String())
		case *layers.ICMPv6:
			names = append(names, "ICMPv6 "+l.TypeCode.String())
		default:
			names = append(names, l.LayerType().String())
		}
	}
	return strings.Join(names, ", ")
}
