package traffic

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
)

// unseen are the octets of a packet's headers and payload in which a flipped
// bit is found neither by comparing nor by looking at lengths and checksums.
func unseen(t *testing.T, template Template) (octets []int) {
	t.Helper()
	j, frames := written(t, template, 1)
	frame := frames[0]
	numbers := numbersOf(j, 0, 0)
	if !expectedFrame(j.Expect, numbers, frame) || verify(frame) != nil {
		t.Fatalf("a right packet is wrong: %x", frame)
	}
	for i := range frame[:len(frame)-lenTag] {
		for bit := range 8 {
			hurt := bytes.Clone(frame)
			hurt[i] ^= 1 << bit
			if expectedFrame(j.Expect, numbers, hurt) && verify(hurt) == nil {
				octets = append(octets, i)
				break
			}
		}
	}
	return octets
}

// expectedFrame compares as the receiver does.
func expectedFrame(x trafficrun.Expect, numbers [trafficrun.Keys]uint32, frame []byte) bool {
	for i, want := range x.Want {
		if (frame[i]^want)&x.Mask[i] != 0 {
			return false
		}
	}
	for _, p := range x.Places {
		if be.Uint32(frame[p.Offset:]) != p.Base+numbers[p.Key]<<p.Shift {
			return false
		}
	}
	return true
}

// The receiver sees a change of any octet, except for the octets that a device may
// change: Ethernet addresses, the hop limit, and fields without a checksum whose
// value nobody set.
func TestNoChangeIsUnseen(t *testing.T) {
	const addresses = "0 1 2 3 4 5 6 7 8 9 10 11"
	want := map[string]string{
		"ethernet":          addresses + text(14, 47), // has no checksum
		"imix":              addresses + text(42, 47), // nor has this
		"gtpu4":             addresses + text(50, 52), // mean nothing without the flags S and PN
		"gtpu4-plain":       addresses + " 57",        // hop limits
		"gtpu6":             addresses + " 21",
		"gtpu6-in6":         addresses + " 21",
		"gtpu6-no-checksum": addresses + " 21",
		"vxlan4":            addresses + " 34 35" + text(50, 61), // the source port of no checksum; inner addresses
		"ipv4":              addresses,
		"ipv6":              addresses + " 21",
		"srv6-1":            addresses + " 21",
		"srv6-3":            addresses + " 21 117",
		"srv6-12":           addresses + " 21",
	}
	each(t, func(t *testing.T, file string, template Template) {
		got := fmt.Sprint(unseen(t, template))
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if got != "["+want[name]+"]" {
			t.Errorf("octets %s, want [%s]", got, want[name])
		}
	})
}

// text is " 14 15 16": the octets from first to last.
func text(first, last int) (s string) {
	for i := first; i <= last; i++ {
		s += fmt.Sprintf(" %d", i)
	}
	return s
}
