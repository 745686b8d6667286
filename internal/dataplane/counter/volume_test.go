package counter

import (
	"math"
	"math/rand/v2"
	"testing"
)

// atHalves are counts at which one half or the other is about to turn.
func atHalves() []Counter {
	var out []Counter
	for _, packets := range []uint64{0, 1<<23 - 1, 1<<24 - 1, 5<<23 - 1, 1<<55 - 1<<24} {
		for _, bytes := range []uint64{0, 1<<39 - 1, 1<<40 - 1, 7<<39 - 1, 1<<63 - 1<<40} {
			out = append(out, Counter{Packets: packets, Bytes: bytes})
		}
	}
	return out
}

func TestVolumeHoldsWhatWasCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	counts := atHalves()
	for range 10_000 {
		counts = append(counts, Counter{Packets: random.Uint64() >> (10 + random.UintN(50)), Bytes: random.Uint64() >> random.UintN(60)})
	}
	for _, c := range counts {
		if c.Packets+c.Bytes>>VolumeByteBits >= 1<<55 {
			continue
		}
		if got := Of(VolumeOf(c)); got != c {
			t.Errorf("%+v: read as %+v", c, got)
		}
	}
}

// TestVolumeBetweenTheAdditions reads while the word is ahead of its halves.
func TestVolumeBetweenTheAdditions(t *testing.T) {
	for _, c := range atHalves() {
		before, after := c, Counter{Packets: c.Packets + 1, Bytes: c.Bytes + math.MaxUint16}
		v := VolumeOf(before)
		v.Word += 1<<VolumeByteBits + math.MaxUint16
		if got := Of(v); got != after {
			t.Errorf("%+v and a packet: read as %+v before the halves are counted", before, got)
		}
		if v.Word != VolumeOf(after).Word {
			t.Errorf("%+v and a packet: the word is %#x", before, v.Word)
		}
	}
}
