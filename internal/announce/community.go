package announce

import (
	"fmt"
	"strconv"
	"strings"
)

// wellKnownCommunities are the names of RFC 1997, 7999 and 8326.
var wellKnownCommunities = map[string]uint32{
	"no-export": 0xffffff01, "no-advertise": 0xffffff02, "no-export-subconfed": 0xffffff03,
	"graceful-shutdown": 0xffff0000, "blackhole": 0xffff029a,
}

// ParseCommunity reads a community: one number for a well-known name, two for 65001:100,
// three for a large one as 65001:1:2.
func ParseCommunity(text string) (parts []uint32, err error) {
	if n, ok := wellKnownCommunities[text]; ok {
		return []uint32{n}, nil
	}
	fields := strings.Split(text, ":")
	bits := map[int]int{2: 16, 3: 32}[len(fields)]
	if bits == 0 {
		return nil, fmt.Errorf("community %q: want 65001:100, 65001:1:2, or a name such as no-export", text)
	}
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, bits)
		if err != nil {
			return nil, fmt.Errorf("community %q: %q is no number of %d bits", text, f, bits)
		}
		parts = append(parts, uint32(n))
	}
	return parts, nil
}
