package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
)

// ClosedPort is an interface of which the kernel gets only what Access lets it have.
type ClosedPort struct {
	Ifindex int
	Mode    attach.Mode
	Access  port.Access // at most port.MaxAccesses different ones
}

// Closed guards interfaces while the data path is not on them
// (docs/adr/0033-fail-closed.md). Its tables are its own and hold nothing else.
type Closed struct {
	XDP *attach.XDP

	mu   sync.Mutex
	pins *pin.Dir
	coll *ebpf.Collection
}

// OpenClosed closes interfaces, and lets go of others that are closed. It pins the links
// at pinPath, which is another one than the data path's: they stay when the process ends,
// however it ends. An interface that is closed already is at no time without a program.
// attach.ErrForeignProgram: the data path, or somebody else's program, is on it.
func OpenClosed(pinPath string, ports []ClosedPort, log *slog.Logger) (*Closed, error) {
	c := &Closed{}
	err := c.load(ports)
	if err == nil {
		err = c.takePins(pinPath, cmp.Or(log, slog.New(slog.DiscardHandler)))
	}
	if err == nil {
		err = c.attach(ports)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
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
		return fmt.Errorf("load the program that closes interfaces: %w", err)
	}
	indices := map[abi.Access]uint32{}
	for _, p := range ports {
		if err := c.write(p, indices); err != nil {
			return fmt.Errorf("interface %s: close: %w", port.Name(p.Ifindex), err)
		}
	}
	return nil
}

func (c *Closed) write(p ClosedPort, indices map[abi.Access]uint32) error {
	entry, err := p.Access.Entry()
	if err != nil {
		return err
	}
	index, there := indices[entry]
	if !there {
		if len(indices) == port.MaxAccesses {
			return fmt.Errorf("more than %d different lists of services", port.MaxAccesses)
		}
		index = uint32(len(indices) + 1) // 0: none
		indices[entry] = index
		if err := c.coll.Maps[abi.MapAccess].Put(index, &entry); err != nil {
			return err
		}
	}
	return c.coll.Maps[abi.MapPort].Put(uint32(p.Ifindex), &abi.Port{Flags: uint32(p.Access.Flags()), Access: uint8(index)})
}

// takePins takes over the links that an earlier process pinned.
func (c *Closed) takePins(path string, log *slog.Logger) (err error) {
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
	c.XDP = attach.NewXDP(&c.mu, log, c.pins, prog)
	return errors.Join(c.XDP.TakeOver(), c.pins.PutProgram(prog, abi.ProgCulvertClosed, ""))
}

func (c *Closed) attach(ports []ClosedPort) error {
	var errs []error
	for ifindex := range c.XDP.Attached() {
		if !slices.ContainsFunc(ports, func(p ClosedPort) bool { return p.Ifindex == ifindex }) {
			errs = append(errs, c.XDP.Detach(ifindex))
		}
	}
	for _, p := range ports {
		_, err := c.XDP.Attach(p.Ifindex, p.Mode)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Outcomes counts the frames since OpenClosed: reason.Passed, and those that are dropped.
func (c *Closed) Outcomes() ([]counter.Counter, error) {
	out, err := counter.ReadAll(c.coll.Maps[abi.MapOutcomes])
	return out[:min(len(out), len(reason.All()))], err
}

// Close lets go of the links, which stay.
func (c *Closed) Close() error {
	errs := []error{c.XDP.Close()}
	if c.coll != nil {
		c.coll.Close()
	}
	if c.pins != nil {
		errs = append(errs, c.pins.Close())
	}
	return errors.Join(errs...)
}
