package traffic

import (
	"net/netip"
	"slices"
)

// listed are the segments in the SRH, in its order: the last one first.
func (o Outer) listed() []netip.Addr {
	path := o.Segments
	if o.Reduced && len(path) > 0 {
		path = path[1:]
	}
	listed := slices.Clone(path)
	slices.Reverse(listed)
	return listed
}
