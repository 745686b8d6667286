package dataplane

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// sliceEntry is where a slice counts, and has its rate (bpf/def/tables.h).
func sliceEntry(slice uint32, direction Direction) uint32 { return 2*slice + uint32(direction) }

func (d *DataPlane) checkSlice(slice uint32) error {
	switch {
	case d.maps == nil:
		return fmt.Errorf("slice %d: the data path is closed", slice)
	case d.sessions == nil:
		return fmt.Errorf("slice %d: %w", slice, errNoSessions)
	case slice == 0 || slice >= maxSlices:
		return fmt.Errorf("slice %d: want 1 to %d", slice, maxSlices-1)
	}
	return nil
}

// SetSlice limits what sessions of a slice send and get, in kbit/s; 0: not. A
// change of a rate keeps its bucket.
func (d *DataPlane) SetSlice(slice uint32, up, down uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkSlice(slice); err != nil {
		return err
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	for direction, rate := range map[Direction]uint32{Uplink: kilobits(up), Downlink: kilobits(down)} {
		index := sliceEntry(slice, direction)
		had := d.sliceMeter.LoadHalf(index, wordMeterRate, 0)
		if had == rate {
			continue
		}
		if had == 0 {
			used := uint32(d.sliceMeter.Load(index, wordMeterUsed))
			d.sliceMeter.Store(index, wordMeterBucket, newBucket(now, used, octetWindow(rate)))
		}
		d.sliceMeter.StoreHalf(index, wordMeterRate, 0, rate)
		slowDown(d.sliceMeter, index, wordMeterBucket, onePayment(abi.Meter{Rate: rate}))
	}
	return nil
}

// SliceCounters count the T-PDUs of a slice's sessions, and their octets.
func (d *DataPlane) SliceCounters(slice uint32) (up, down counter.Counter, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkSlice(slice); err != nil {
		return up, down, err
	}
	if up, err = counter.Read(d.maps[abi.MapSliceCounter], sliceEntry(slice, Uplink)); err != nil {
		return up, down, err
	}
	down, err = counter.Read(d.maps[abi.MapSliceCounter], sliceEntry(slice, Downlink))
	return up, down, err
}
