package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
)

// mapSettings is the map of the program's one variable.
const mapSettings = settings.Map

// loadSpec is the build. Its variable, which costs no look-up as a map's entry
// does, is in a map like the others: of its own name, to be pinned and written
// while packets pass.
func loadSpec() (*ebpf.CollectionSpec, error) {
	spec, err := abi.Load()
	if err != nil {
		return nil, err
	}
	const section = ".data." + mapSettings
	m := spec.Maps[section]
	data, ok := m.Value.(*btf.Datasec)
	if !ok || len(data.Vars) != 1 {
		return nil, fmt.Errorf("section %s: want one variable", section)
	}
	delete(spec.Maps, section)
	spec.Maps[mapSettings] = m
	m.Name, m.Contents = mapSettings, nil
	m.Key, m.Value = spec.Maps[abi.MapPort].Key, data.Vars[0].Type.(*btf.Var).Type
	for _, prog := range spec.Programs {
		for i, ins := range prog.Instructions {
			if ins.IsLoadFromMap() && ins.Reference() == section {
				prog.Instructions[i] = ins.WithReference(mapSettings)
			}
		}
	}
	return spec, nil
}

// prepare makes of the build what this data path loads of it. It sets the sizes that
// maps.h leaves to the loader. SIDs found by index and those
// found by prefix have a half of local_sid each; tunnel has a quarter for
// TEIDs, one for UE pools, and two for entries that neither finds.
func (d *DataPlane) prepare(spec *ebpf.CollectionSpec) {
	l, cpus := d.limits, uint32(ebpf.MustPossibleCPU())
	for name, n := range map[string]uint32{
		abi.MapLocalSid: 2*l.SIDs + 1, abi.MapSidCounter: 2*l.SIDs + 1,
		abi.MapSidByPrefix: l.SIDs, abi.MapMobile: l.SIDs + 1,
		abi.MapSrPolicy:    l.Policies + 1,
		abi.MapSegmentList: l.SegmentLists + 1, abi.MapListCounter: l.SegmentLists + 1,
		abi.MapTunnel: 4 * l.Tunnels, abi.MapTunnelByTeid: l.Tunnels,
		abi.MapTargetByDst4: l.Routes, abi.MapTargetByDst6: l.Routes,
		abi.MapRoute4: l.Routes, abi.MapRoute6: l.Routes,
		abi.MapTrieBlock: l.Routes/8 + 512, abi.MapAdjacency: l.Adjacencies + 1, abi.MapSharedHop: l.Adjacencies + 1,
		abi.MapSpreadCpu: cpus, abi.MapSpreadCpu2: cpus, abi.MapSpreadQueue: 2 * cpus,
	} {
		spec.Maps[name].MaxEntries = n
	}
	d.unused = map[string]pin.Unused{}
	for name, n := range session.MapSizes(l) {
		d.unused[name] = pin.Unused{Entries: spec.Maps[name].MaxEntries}
		if l.Sessions != 0 {
			spec.Maps[name].MaxEntries = n
		}
	}
	for name, n := range map[string]uint32{abi.MapNetpolFlow: l.FlowBuckets(), abi.MapFlowCache: l.FlowCacheSets()} {
		d.unused[name] = pin.Unused{Entries: spec.Maps[name].MaxEntries}
		if l.PodFlows != 0 {
			spec.Maps[name].MaxEntries = n
		}
	}
	d.unused[abi.MapNatBucket] = pin.Unused{Entries: spec.Maps[abi.MapNatBucket].MaxEntries}
	if l.NATAddresses != 0 {
		spec.Maps[abi.MapNatBucket].MaxEntries = l.NATAddresses * settings.BucketsOfAddress
	}
	for name, n := range n4.MapSizes(d.places) {
		d.unused[name] = pin.Unused{Entries: spec.Maps[name].MaxEntries, Stays: l.Sessions != 0}
		if d.places != 0 {
			spec.Maps[name].MaxEntries = n
		}
		spec.Maps[name].MaxEntries = max(spec.Maps[name].MaxEntries, d.stays[name])
	}
	// These are written word by word, see table.Array.
	for _, name := range []string{mapSettings, abi.MapLocalSid, abi.MapSharedHop, abi.MapTrieRoot, abi.MapTrieBlock, abi.MapSrPolicy, abi.MapTunnel, abi.MapClassWay,
		abi.MapN4State, abi.MapN4Session, abi.MapN4Dirty, abi.MapSpreadSettings, abi.MapSpreadBucket, abi.MapSpreadQueue,
		abi.MapNatBucket, abi.MapUeBucket, abi.MapPdr, abi.MapRefused, abi.MapQuota, abi.MapFilter, abi.MapFrameFilter, abi.MapForwarding, abi.MapMeter, abi.MapSliceMeter} {
		spec.Maps[name].Flags |= unix.BPF_F_MMAPABLE
	}
	spec.Maps[abi.MapFlowCache].Flags |= unix.BPF_F_MMAPABLE // begins with a page then, and each entry with a cache line
	if d.edit != nil {
		d.edit(spec)
	}
}

// load puts the build into the kernel, on top of maps that are there already; the
// programs for pods are left until they are needed.
func (d *DataPlane) load(spec *ebpf.CollectionSpec, pinned map[string]*ebpf.Map) error {
	coll, err := d.loadPrograms(spec, pinned, abi.ProgCulvertXdp)
	if err != nil {
		return err
	}
	d.maps = coll.Maps
	d.prog = coll.Programs[abi.ProgCulvertXdp]
	return nil
}

func (d *DataPlane) loadPrograms(spec *ebpf.CollectionSpec, there map[string]*ebpf.Map, names ...string) (*ebpf.Collection, error) {
	some := spec.Copy()
	maps.DeleteFunc(some.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(names, name) })
	coll, err := d.collect(some, ebpf.CollectionOptions{MapReplacements: there})
	if err != nil {
		var verifier *ebpf.VerifierError
		if errors.As(err, &verifier) {
			d.log.Debug("the kernel refused the data path", "log", fmt.Sprintf("%+v", verifier))
		}
		return nil, fmt.Errorf("load the data path: %w", err)
	}
	return coll, nil
}
