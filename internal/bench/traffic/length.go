package traffic

import (
	"cmp"
	"slices"
)

// Lengths in octets.
const (
	lenEthernet = 14
	lenFCS      = 4
	lenIPv4     = 20
	lenIPv6     = 40
	lenUDP      = 8
	lenGTPU     = 8
	lenVXLAN    = 8
	lenSRH      = 8 // and 16 for each segment
	lenTag      = 12
	minFrame    = 64 // with FCS
)

func lenIP(is4 bool) int {
	if is4 {
		return lenIPv4
	}
	return lenIPv6
}

// imix are the frame lengths of IMIX, and how many there are of each of 48.
var imix = []struct{ size, of48 int }{{64, 28}, {570, 16}, {1518, 4}}

// sizes are the different lengths of frames with FCS.
func (t Template) sizes() []int {
	least := max(minFrame, t.headers()+lenTag+lenFCS)
	switch {
	case t.IMIX:
		var sizes []int
		for _, i := range imix {
			sizes = append(sizes, max(i.size, least))
		}
		return sizes
	case t.Payload != 0 && t.Inner.Source.IsValid():
		return []int{t.headers() - lenUDP + t.Payload + lenFCS}
	case t.Payload != 0:
		return []int{lenEthernet + t.Payload + lenFCS}
	case t.Size != 0:
		return []int{t.Size}
	}
	return []int{least}
}

// slots are the indices into sizes that packets take one after the other, each
// size as evenly as its number allows.
func (t Template) slots() []uint8 {
	if !t.IMIX {
		return []uint8{0}
	}
	slots, had := make([]uint8, 0, 48), make([]int, len(imix))
	for n := 1; n <= 48; n++ {
		behind := make([]int, len(imix)) // in 48ths of a packet
		for i := range imix {
			behind[i] = n*imix[i].of48 - 48*had[i]
		}
		i := slices.Index(behind, slices.Max(behind))
		had[i]++
		slots = append(slots, uint8(i))
	}
	return slots
}

func (i Inner) sourcePort() int { return int(cmp.Or(i.SourcePort, 4000)) }
