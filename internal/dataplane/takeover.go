package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/spread"
)

// openPinned loads the data path and pins it at path, or takes over what is
// pinned there.
func (d *DataPlane) openPinned(spec *ebpf.CollectionSpec, path string) error {
	path = filepath.Clean(path)
	if err := pin.CheckPath(path); err != nil {
		return err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return d.pinNew(spec, path)
	} else if err != nil {
		return fmt.Errorf("pin path: %w", err)
	}
	return d.takeOver(spec, path)
}

func (d *DataPlane) pinNew(spec *ebpf.CollectionSpec, path string) error {
	err := d.load(spec, nil)
	if err != nil {
		return err
	}
	if d.pins, err = pin.Create(path); err != nil {
		return err
	}
	if err := pinAll(d, spec); err != nil {
		return err
	}
	if err := d.pins.Publish(path); err != nil {
		return err
	}
	return d.openAttachments()
}

// pinAll pins the program and all maps in a directory that has none.
func pinAll(d *DataPlane, spec *ebpf.CollectionSpec) error {
	if err := d.pins.PutProgram(d.prog, abi.ProgCulvertXdp, d.build); err != nil {
		return err
	}
	for name, m := range d.maps {
		if err := d.pins.PutMap(spec, name, m); err != nil {
			return err
		}
	}
	return nil
}

// takeOver lets the pinned links run this build's program: the pinned one if it
// is that, or one that is loaded on top of the pinned maps. Where these do not fit this
// build, or its limits, it is loaded beside them.
func (d *DataPlane) takeOver(spec *ebpf.CollectionSpec, path string) (err error) {
	if d.pins, err = pin.Take(path, abi.ProgCulvertXdp); err != nil {
		return err
	}
	there, err := d.pins.LoadMaps(spec, d.unused)
	if err != nil {
		return err
	}
	d.stays = map[string]uint32{}
	for name, u := range d.unused {
		if u.Stays {
			d.stays[name] = spec.Maps[name].MaxEntries
		}
	}
	if len(there.Differ) > 0 {
		return renew(d, spec, there)
	}
	pinned := there.Maps
	if err := d.pins.Record(spec, pinned); err != nil {
		return err
	}
	same := func() map[string]*ebpf.Program { return d.samePrograms(spec, podPrograms) }
	sameForward := func() *ebpf.Program {
		return d.pins.SameProgram(abi.ProgCulvertForward, spec, d.maps, d.build)
	}
	if d.prog = d.pins.SameProgram(abi.ProgCulvertXdp, spec, pinned, d.build); d.prog != nil {
		d.maps = pinned
		return errors.Join(d.openAttachments(), d.XDP.TakeOver(), d.TCX.TakeOver(same), d.netfilter.TakeOver(sameForward))
	}
	err = d.load(spec, pinned)
	defer there.Close() // load clones them
	if err != nil {
		return err
	}
	for name, m := range d.maps {
		if pinned[name] == nil { // new in this build
			if err := d.pins.PutMap(spec, name, m); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(d.openAttachments(), d.XDP.TakeOver()); err != nil {
		return err
	}
	if err := d.pins.PutProgram(d.prog, abi.ProgCulvertXdp, d.build); err != nil {
		return err
	}
	return errors.Join(d.TCX.TakeOver(same), d.netfilter.TakeOver(sameForward), d.pins.RemoveObsolete(spec))
}

// samePrograms are programs that are pinned, if all of them are of this build.
func (d *DataPlane) samePrograms(spec *ebpf.CollectionSpec, names []string) map[string]*ebpf.Program {
	if d.pins == nil {
		return nil
	}
	out := map[string]*ebpf.Program{}
	for _, name := range names {
		p := d.pins.SameProgram(name, spec, d.maps, d.build)
		if p == nil {
			closeAll(out)
			return nil
		}
		out[name] = p
	}
	return out
}

func closeAll(programs map[string]*ebpf.Program) {
	for _, p := range programs {
		p.Close()
	}
}

// loadAndPin loads programs beside those that run, and pins them.
func (d *DataPlane) loadAndPin(names []string) (map[string]*ebpf.Program, error) {
	programs, err := d.loadLater(names...)
	var errs []error
	for name, p := range programs {
		if d.pins != nil {
			errs = append(errs, d.pins.PutProgram(p, name, d.build))
		}
	}
	return programs, errors.Join(append(errs, err)...)
}

// podPrograms are the programs for pods.
var podPrograms = []string{abi.ProgCulvertPod, abi.ProgCulvertUplink}

// loadSpreadPrograms loads what spreads packets over CPUs. Links and queues keep these
// programs: they need no pin.
func (d *DataPlane) loadSpreadPrograms() (p spread.Programs, err error) {
	programs, err := d.loadLater(abi.ProgCulvertSpread, abi.ProgCulvertCpu)
	if err != nil {
		return p, err
	}
	p = spread.Programs{Send: programs[abi.ProgCulvertSpread], Receive: programs[abi.ProgCulvertCpu]}
	if err = d.maps[abi.MapNextProgram].Put(uint32(abi.ProgramPROGRAM_DATA_PATH), d.prog); err != nil {
		err = fmt.Errorf("write table %s: %w", abi.MapNextProgram, err)
	}
	return p, err
}

// loadLater loads programs beside those that run.
func (d *DataPlane) loadLater(names ...string) (map[string]*ebpf.Program, error) {
	spec, err := loadSpec()
	if err != nil {
		return nil, err
	}
	d.prepare(spec)
	coll, err := d.loadPrograms(spec, d.maps, names...)
	if err != nil {
		return nil, err
	}
	programs := coll.Programs
	coll.Programs = nil
	coll.Close()
	return programs, nil
}
