package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// onlyRead are the maps that packets do not change.
var onlyRead = []string{
	abi.MapPort, abi.MapAccess, abi.MapDevice, abi.MapTargetByPort, abi.MapTargetByDst4, abi.MapTargetByDst6,
	abi.MapSidByPrefix, abi.MapLocalSid, abi.MapMobile, abi.MapSource, abi.MapSrPolicy, abi.MapSegmentList,
	abi.MapClassBySource, abi.MapClassifier, abi.MapClassWay, abi.MapPod, abi.MapOverlay,
	abi.MapTunnelByTeid, abi.MapPdrByTeid, abi.MapPdrByUe, abi.MapUeBucket, abi.MapQuota, abi.MapUeReach, abi.MapFilter, abi.MapFrameFilter, abi.MapForwarding,
	abi.MapRoute4, abi.MapRoute6, abi.MapTrieRoot, abi.MapTrieBlock, abi.MapAdjacency, abi.MapSharedHop,
}

// decisive are maps that packets change and that decide about later packets: volumes, meters,
// mappings, hosts behind UEs. What is neither here nor in onlyRead counts, saves a look-up or
// belongs to one packet.
var decisive = []string{
	mapSettings, abi.MapTunnel, abi.MapPdr, abi.MapRefused, abi.MapMeter, abi.MapSliceMeter, abi.MapLimitByGroup, abi.MapNatBucket, abi.MapStation,
}

// Explain says what would become of frames that arrived by an interface now, one after the
// other. The program of this build runs on copies of what packets change: nothing is sent,
// counted or charged.
func Explain(d *DataPlane, frames [][]byte, ifindex int) ([]event.TraceEvent, error) {
	x, err := loadExplanation(d)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	if err := x.copyFrom(d); err != nil {
		return nil, err
	}
	records, err := x.run(frames, ifindex)
	if err != nil {
		return nil, err
	}
	events := make([]event.TraceEvent, len(records))
	for i := range records {
		events[i] = d.Trace.Event(&records[i])
	}
	return events, nil
}

// explanation is a data path beside the one that runs. It has the same maps where packets
// only read them.
type explanation struct{ *ebpf.Collection }

func loadExplanation(d *DataPlane) (x explanation, err error) {
	spec, err := loadSpec()
	if err != nil {
		return x, err
	}
	d.prepare(spec)
	used := map[string]bool{}
	for _, ins := range spec.Programs[abi.ProgCulvertXdp].Instructions {
		if ins.IsLoadFromMap() {
			used[ins.Reference()] = true
		}
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !used[name] })
	shared := map[string]*ebpf.Map{}
	for _, name := range onlyRead {
		if used[name] {
			shared[name] = d.maps[name]
		}
	}
	x.Collection, err = d.loadPrograms(spec, shared, abi.ProgCulvertXdp)
	return x, err
}

// copyFrom takes what decides about packets now, and has each packet recorded.
func (x explanation) copyFrom(d *DataPlane) error {
	d.mu.Lock() // so that no entry is copied half written
	defer d.mu.Unlock()
	for _, name := range decisive {
		if err := copyMap(x.Maps[name], d.maps[name]); err != nil {
			return fmt.Errorf("copy table %s: %w", name, err)
		}
	}
	all := d.settings.Get()
	all.Trace = 1
	if err := x.Maps[mapSettings].Put(uint32(0), &all); err != nil {
		return fmt.Errorf("write table %s: %w", mapSettings, err)
	}
	return nil
}

// copyMap copies an array that can be mapped into our memory, or a hash.
func copyMap(to, from *ebpf.Map) error {
	if from.Type() != ebpf.Array {
		var key, value []byte
		it := from.Iterate()
		for it.Next(&key, &value) {
			if err := to.Put(key, value); err != nil {
				return err
			}
		}
		return it.Err()
	}
	source, err := table.Map(from)
	if err != nil {
		return err
	}
	target, err := table.Map(to)
	copy(target, source)
	return errors.Join(err, table.Unmap(source), table.Unmap(target))
}

// run returns a record of each frame's journey.
func (x explanation) run(frames [][]byte, ifindex int) ([]abi.TraceEvent, error) {
	reader, err := ringbuf.NewReader(x.Maps[abi.MapTraceEvents])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", abi.MapTraceEvents, err)
	}
	defer reader.Close()
	program := xdp.New(x.Programs[abi.ProgCulvertXdp])
	out := make([]abi.TraceEvent, len(frames))
	for i, frame := range frames {
		if _, _, err := program.Test(frame, ifindex); err != nil {
			return nil, fmt.Errorf("packet %d: %w", i+1, err)
		}
		reader.SetDeadline(time.Now().Add(time.Second))
		record, err := reader.Read()
		if err != nil {
			return nil, fmt.Errorf("packet %d has no record: %w", i+1, err)
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[i])), unsafe.Sizeof(out[i])), record.RawSample)
	}
	return out, nil
}
