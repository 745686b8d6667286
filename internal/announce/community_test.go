package announce

import (
	"slices"
	"testing"
)

func TestParseCommunity(t *testing.T) {
	for text, want := range map[string][]uint32{
		"65001:100": {65001, 100}, "0:0": {0, 0}, "4200000000:1:2": {4200000000, 1, 2}, "no-export": {0xffffff01}, "graceful-shutdown": {0xffff0000},
		"": nil, "65001": nil, "65536:1": nil, "1:65536": nil, "1:2:3:4": nil, "a:b": nil, "1:-1": nil, "4294967296:1:1": nil, "No-Export": nil,
	} {
		got, err := ParseCommunity(text)
		if (err != nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
