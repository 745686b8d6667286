package dataplane

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// source is an outer source address that tunnels share.
type source struct {
	index uint32
	refs  int
}

// acquireSource refers to an outer source and returns its index; 0 for none.
func (d *DataPlane) acquireSource(a abi.In6) (uint32, error) {
	if a == (abi.In6{}) {
		return 0, nil
	}
	if s := d.sources[a]; s != nil {
		s.refs++
		return s.index, nil
	}
	index, err := d.sourceIndex.Alloc()
	if err != nil {
		return 0, err
	}
	if err := d.maps[abi.MapSource].Put(index, &a); err != nil {
		d.sourceIndex.Retire(index)
		return 0, fmt.Errorf("write table source: %w", err)
	}
	d.sources[a] = &source{index: index, refs: 1}
	return index, nil
}

func (d *DataPlane) releaseSource(a abi.In6) {
	s := d.sources[a]
	if s == nil {
		return
	}
	if s.refs--; s.refs <= 0 {
		delete(d.sources, a)
		d.sourceIndex.Retire(s.index)
	}
}
