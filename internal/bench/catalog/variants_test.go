package catalog

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/checksum"
)

func all(size int) []Function { return append(Functions(size), UPFFunctions(size)[1:3]...) }

// Each function is measured bare, while a trace runs, and on a port that steers by interface.
func TestEveryFunctionHasItsVariants(t *testing.T) {
	names := Names(Variants(all(ShortSize)))
	for _, f := range all(ShortSize)[1:] {
		for _, suffix := range []string{suffixTrace, suffixSteered} {
			// frames of in1 are steered anyway
			if want := f.Port != node.PortFrames || suffix == suffixTrace; slices.Contains(names, f.Name+"@"+suffix) != want {
				t.Errorf("%s@%s is there: %t, want %t", f.Name, suffix, !want, want)
			}
		}
	}
	for suffix, of := range map[string][]string{
		suffixIPv6:    {"gtpu_decap", "gtpu_encap", "gtpu_switch", "uplink", "downlink"},
		suffixPSP:     {"end"},
		suffixSRH:     {"end_dt46", "end_m_gtp4_e"},
		suffixOutside: {"h_encaps_red", "gtpu_encap", "uplink", "downlink"},
	} {
		var got []string
		for _, name := range names {
			if base, is := strings.CutSuffix(name, "@"+suffix); is {
				got = append(got, base)
			}
		}
		slices.Sort(got)
		slices.Sort(of)
		if !slices.Equal(got, of) {
			t.Errorf("@%s: %v, want %v", suffix, got, of)
		}
	}
}

// GTP-U over IPv6 has a UDP checksum (RFC 8200), and lengths that say where the frame ends.
func TestFramesOverIPv6(t *testing.T) {
	for _, f := range Variants(all(ShortSize)) {
		name, over := strings.CutSuffix(f.Name, "@"+suffixIPv6)
		if !over || name == "downlink" || name == "gtpu_encap" { // whose own headers are
			continue
		}
		ip := f.Data[rig.LenEthernet:]
		udp, gtpu := ip[rig.LenIPv6:], ip[rig.LenIPv6+rig.LenUDP:]
		length := binary.BigEndian.Uint16(ip[4:])
		if ip[0]>>4 != 6 || int(length) != len(udp) || binary.BigEndian.Uint16(udp[4:]) != length {
			t.Errorf("%s: the lengths of %x are wrong", f.Name, f.Data)
		}
		pseudo := slices.Concat(ip[8:40], []byte{0, 0, udp[4], udp[5], 0, 0, 0, rig.ProtoUDP}, udp)
		if got := checksum.Of(pseudo, 0); got != 0 {
			t.Errorf("%s: the UDP checksum is wrong by %#x", f.Name, got)
		}
		if at := int(f.Key.Offset) - rig.LenEthernet - rig.LenIPv6 - rig.LenUDP; at != 4 || gtpu[1] != 255 {
			t.Errorf("%s: the key is at %d of %x, want the TEID", f.Name, at, gtpu)
		}
	}
}

// Frames of sessions belong to 8 flows of the UE, also in frames of other shapes; behind a NAT the ports are mapped.
func TestFlowsOfUEs(t *testing.T) {
	for _, f := range append(Variants(UPFFunctions(ShortSize)), Variants(all(ShortSize))...) {
		frame := f.Frame(1, 1000)
		switch {
		case f.Sessions == nil || f.Sessions.NAT != nil:
			if frame.Flows != 0 {
				t.Errorf("%s: %d flows", f.Name, frame.Flows)
			}
		case frame.Flows != 8 || binary.BigEndian.Uint16(frame.Data[frame.Flow.Offset:]) != uePort || frame.Flow.Base != uePort:
			t.Errorf("%s: %d flows at %d of %x", f.Name, frame.Flows, frame.Flow.Offset, frame.Data)
		}
	}
}
