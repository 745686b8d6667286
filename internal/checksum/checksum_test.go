package checksum

import (
	"net/netip"
	"testing"
)

// The example of RFC 1071 section 3, and its odd-length counterpart.
func TestOf(t *testing.T) {
	b := []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}
	if got := Of(b, 0); got != ^uint16(0xddf2) {
		t.Errorf("checksum %#x, want %#x", got, ^uint16(0xddf2))
	}
	if got, want := Of(b[:7], 0), Of(append(b[:7:7], 0), 0); got != want {
		t.Errorf("odd length: %#x, want %#x", got, want)
	}
	// A packet with its checksum in place sums up to 0.
	if got := Of(append(b, 0x22, 0x0d), 0); got != 0 {
		t.Errorf("with its checksum: %#x", got)
	}
	if got := Partial(0x1ddf0); got != 0xddf1 {
		t.Errorf("partial: %#x", got)
	}
}

// A datagram's checksum makes the sum 0, with the pseudo-header, and is never 0
// itself.
func TestUDP(t *testing.T) {
	for _, pair := range [][2]string{{"192.0.2.1", "198.51.100.2"}, {"2001:db8::1", "2001:db8:ffff::2"}} {
		src, dst := netip.MustParseAddr(pair[0]), netip.MustParseAddr(pair[1])
		zeros := 0
		for n := range 1 << 16 {
			b := []byte{0x0f, 0xa0, 0x13, 0x88, 0, 11, 0, 0, byte(n >> 8), byte(n), 7}
			sum := UDP(src, dst, b)
			b[6], b[7] = byte(sum>>8), byte(sum)
			if got := Of(b, Pseudo(src, dst, 17, len(b))); got != 0 || sum == 0 {
				t.Fatalf("%s: data %#x: checksum %#x, which leaves %#x", src, n, sum, got)
			}
			if sum == 0xffff {
				zeros++
			}
		}
		if zeros == 0 {
			t.Errorf("%s: the checksum was never 0 before its complement", src)
		}
	}
}
