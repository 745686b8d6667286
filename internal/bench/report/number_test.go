package report

import (
	"math"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1.234: "1.23", -12.34: "−12.3", 1234: "1234", 12345.6: "12\u202f346", 0.01234: "0.0123",
		0.9996: "0.9996", 0.99999: "0.99999", math.Inf(1): "–",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

// A ratio keeps digits at both ends of a wide interval.
func TestInTimes(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.0043: "0.0043", 0.083: "0.083", 0.1944: "0.19", 1.0149: "1.01", 9.999: "10.00", 11.57: "11.6", 355.43: "355", 12345.6: "12\u202f346"} {
		if got := inTimes(v); got != want {
			t.Errorf("%v is %q times, want %q", v, got, want)
		}
	}
}

func TestScales(t *testing.T) {
	for _, tt := range []struct {
		unit    string
		largest float64
		want    string
	}{
		{"ns", 999, "999 ns"},
		{"ns", 1500, "1.50 µs"},
		{"us", 2500, "2.50 ms"},
		{"packets/s", 9_300_000, "9.30 Mpackets/s"},
		{"bit/s", 100e9, "100 Gbit/s"},
		{"octets", 89_630_272, "89.6 MB"},
		{"octets", 64, "64.0 octets"},
		{"%", 41, "41.0 %"},
		{"", 1.25, "1.25"},
	} {
		got := scaleOf(tt.unit, tt.largest).sentence(result.Estimate{Value: tt.largest, N: 1})
		if got != tt.want {
			t.Errorf("%v %s is told as %q, want %q", tt.largest, tt.unit, got, tt.want)
		}
	}
}
