package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/logevent"
)

// ClosedPort is an interface of which the kernel gets only what Access lets it have.
type ClosedPort struct {
	Ifindex int
	Mode    attach.Mode
	Access  port.Access // without Peers; at most port.MaxAccesses different ones
	MAC     [6]byte     // as port.Port.MAC
}

// Closed guards interfaces while the data path is not on them
// (docs/adr/0033-fail-closed.md). Its tables are its own and hold nothing else.
type Closed struct {
	XDP *attach.XDP

	mu     sync.Mutex // of XDP
	log    *slog.Logger
	pins   *pin.Dir
	coll   *ebpf.Collection
	access map[abi.Access]uint32 // the entries of that table; only Put changes them
}

// OpenClosed closes interfaces, and lets go of others that are closed. It pins the links
// beside pinPath, which is the data path's: they stay when the process ends, however it ends.
// An interface that is closed already is at no time without a program. One that cannot be
// closed is logged.
func OpenClosed(pinPath string, ports []ClosedPort, log *slog.Logger) (*Closed, error) {
	c := &Closed{log: cmp.Or(log, slog.New(slog.DiscardHandler)), access: map[abi.Access]uint32{}}
	err := c.load(ports)
	if err == nil {
		err = c.takePins(filepath.Clean(pinPath) + pin.ClosedSuffix)
	}
	if err == nil {
		err = c.leaveOthers(ports)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("close interfaces: %w", err), c.Close())
	}
	for _, p := range ports {
		if err := c.Put(p); err != nil {
			c.log.Error("an interface is open until the data path is on it", "event", logevent.InterfaceOpen, "interface", port.Name(p.Ifindex), "error", err)
		}
	}
	return c, nil
}

// load fills the tables before any packet meets them.
func (c *Closed) load(ports []ClosedPort) error {
	spec, err := loadSpec()
	if err != nil {
		return err
	}
	tables := []string{abi.MapPort, abi.MapAccess, abi.MapOutcomes}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !slices.Contains(tables, name) })
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != abi.ProgCulvertClosed })
	if c.coll, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("load the program: %w", err)
	}
	for _, p := range ports {
		if err := c.write(p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Closed) write(p ClosedPort) error {
	if err := port.CheckIndex(p.Ifindex); err != nil {
		return err
	}
	entry, err := p.Access.Entry()
	if err != nil {
		return err
	}
	index, there := c.access[entry]
	if !there {
		if len(c.access) == port.MaxAccesses {
			return fmt.Errorf("interface %s: more than %d different lists of services", port.Name(p.Ifindex), port.MaxAccesses)
		}
		index = uint32(len(c.access) + 1) // 0: none
		if err := c.coll.Maps[abi.MapAccess].Put(index, &entry); err != nil {
			return fmt.Errorf("write table %s: %w", abi.MapAccess, err)
		}
		c.access[entry] = index
	}
	v := abi.Port{Flags: uint32(p.Access.Flags()), Access: uint8(index), Mac: port.Number(p.MAC)}
	if err := c.coll.Maps[abi.MapPort].Put(uint32(p.Ifindex), &v); err != nil {
		return fmt.Errorf("write table %s: %w", abi.MapPort, err)
	}
	return nil
}

// Put closes an interface, in another mode than asked for if it must be. Where the data path
// or somebody else's program is on it, that stays.
func (c *Closed) Put(p ClosedPort) error {
	if err := c.write(p); err != nil {
		return err
	}
	_, err := c.XDP.Attach(p.Ifindex, p.Mode)
	if err != nil && p.Mode == attach.ModeNative && !errors.Is(err, attach.ErrForeignProgram) {
		_, err = c.XDP.Attach(p.Ifindex, attach.ModeGeneric)
	}
	if errors.Is(err, attach.ErrForeignProgram) {
		return nil
	}
	return err
}

// Delete opens an interface. One that is not closed is not an error.
func (c *Closed) Delete(ifindex int) error {
	if c == nil {
		return nil
	}
	return c.XDP.Detach(ifindex)
}

// Attached lists the interfaces that are closed, and how.
func (c *Closed) Attached() map[int]attach.Mode {
	if c == nil {
		return nil
	}
	return c.XDP.Attached()
}

// guardFirst closes the interfaces of Options, unless the data path of an earlier process is on
// all of them: then the program is not needed, and a restart does not wait for it.
func guardFirst(o *Options, log *slog.Logger) (*Closed, error) {
	if o.PinPath == "" {
		return nil, nil
	}
	on, err := pin.XDPInterfaces(o.PinPath)
	if err != nil {
		return nil, err
	}
	left, err := pin.XDPInterfaces(filepath.Clean(o.PinPath) + pin.ClosedSuffix)
	if err != nil {
		return nil, err
	}
	open := slices.ContainsFunc(o.Closed, func(p ClosedPort) bool { return !on[p.Ifindex] })
	if !open && len(left) == 0 {
		return nil, nil
	}
	return OpenClosed(o.PinPath, o.Closed, log)
}

// ClosePort closes an interface that the data path cannot be attached to.
func ClosePort(d *DataPlane, p ClosedPort) (err error) {
	if d.Closed != nil {
		return d.Closed.Put(p)
	}
	if d.pinPath == "" {
		return nil
	}
	if d.Closed, err = OpenClosed(d.pinPath, []ClosedPort{p}, d.log); err == nil {
		d.XDP.Guarded(d.Closed.XDP)
	}
	return err
}

// takePins takes over the links that an earlier process pinned.
func (c *Closed) takePins(path string) (err error) {
	if err := pin.CheckPath(path); err != nil {
		return err
	}
	prog := c.coll.Programs[abi.ProgCulvertClosed]
	if _, err = os.Lstat(path); err == nil {
		c.pins, err = pin.Take(path, abi.ProgCulvertClosed)
	} else if errors.Is(err, fs.ErrNotExist) {
		if c.pins, err = pin.Create(path); err == nil {
			err = errors.Join(c.pins.PutProgram(prog, abi.ProgCulvertClosed, ""), c.pins.Publish(path))
		}
	}
	if err != nil {
		return err
	}
	c.XDP = attach.NewXDP(&c.mu, c.log, c.pins, prog)
	return errors.Join(c.XDP.TakeOver(), c.pins.PutProgram(prog, abi.ProgCulvertClosed, ""))
}

// leaveOthers opens the interfaces that an earlier process closed and that are not among ports.
func (c *Closed) leaveOthers(ports []ClosedPort) error {
	var errs []error
	for ifindex := range c.XDP.Attached() {
		if !slices.ContainsFunc(ports, func(p ClosedPort) bool { return p.Ifindex == ifindex }) {
			errs = append(errs, c.XDP.Detach(ifindex))
		}
	}
	return errors.Join(errs...)
}

// Outcomes counts the frames since OpenClosed: reason.Passed, and those that are dropped.
func (c *Closed) Outcomes() ([]counter.Counter, error) {
	if c == nil {
		return nil, nil
	}
	out, err := counter.ReadAll(c.coll.Maps[abi.MapOutcomes])
	return out[:min(len(out), len(reason.All()))], err
}

// Close lets go of the links, which stay.
func (c *Closed) Close() error {
	if c == nil {
		return nil
	}
	errs := []error{c.XDP.Close()}
	if c.coll != nil {
		c.coll.Close()
	}
	if c.pins != nil {
		errs = append(errs, c.pins.Close())
	}
	return errors.Join(errs...)
}
