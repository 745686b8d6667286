package check

import (
	"maps"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/report"
)

func TestSumReports(t *testing.T) {
	tests := []struct {
		name, lines string
		want        volumes
		words       string // of an error
	}{
		{"none", "", volumes{}, ""},
		{"two URRs in two frames", "1,2\t0,0\t100,90\t10,9\n1\t1\t5\t6\n", volumes{1: {105, 16}, 2: {90, 9}}, ""},
		{"sent again", "1\t0\t7\t8\n1\t0\t7\t8\n", volumes{1: {7, 8}}, ""},
		{"hexadecimal", "0x80000001\t0\t7\t8\n", volumes{0x80000001: {7, 8}}, ""},
		{"one number for two reports", "1\t0\t7\t8\n1\t0\t7\t9\n", nil, "two reports 0"},
		{"no volume downlink", "1,2\t0,0\t7,7\t8\n", nil, "without volumes"},
		{"no volume", "1\t0\t\t\n", nil, "tshark says"},
		{"more columns", "1\t0\t7\t8\t9\n", nil, "tshark says"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sumReports(tt.lines)
			if tt.words != "" {
				wantError(t, err, tt.words)
			} else if err != nil || !maps.Equal(got, tt.want) {
				t.Errorf("%v, %v: want %v", got, err, tt.want)
			}
		})
	}
}

// TestCompareVolume: one octet more or less is told.
func TestCompareVolume(t *testing.T) {
	for got, equal := range map[volume]bool{{5, 7}: true, {4, 7}: false, {5, 8}: false, {7, 5}: false} {
		var o report.Outcome
		if compareVolume("URR 1", got, volume{5, 7}, &o); (len(o.Problems) == 0) != equal || (len(o.Detail) == 1) != equal {
			t.Errorf("%v: %v, %v", got, o.Problems, o.Detail)
		}
	}
}
