package attach

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/logevent"
)

// Mode is how the program is attached to an interface.
type Mode string

// The modes.
const (
	ModeNative  Mode = "native"  // in the driver
	ModeGeneric Mode = "generic" // in the stack, slower; any interface
	ModeAuto    Mode = "auto"    // native where the driver can, else generic
)

// ErrForeignProgram says that somebody else's XDP program is on an interface.
var ErrForeignProgram = errors.New("another XDP program is attached")

// XDP attaches the data path's program to interfaces.
type XDP struct {
	mu   *sync.Mutex
	log  *slog.Logger
	prog *ebpf.Program
	// first, if any, is what native interfaces run, which ends in prog.
	first *ebpf.Program
	// signalling, if any, is what interfaces of n4Alone run, which ends in prog, too.
	signalling *ebpf.Program
	n4Alone    map[int]bool
	held       bool // links keep what they run
	// guard, if any, is on interfaces until this program is (docs/adr/0033-fail-closed.md).
	guard *XDP
	links
}

// NewXDP attaches nothing. mu is the data path's lock.
func NewXDP(mu *sync.Mutex, log *slog.Logger, pins *pin.Dir, prog *ebpf.Program) *XDP {
	return &XDP{mu: mu, log: log, prog: prog, n4Alone: map[int]bool{}, links: links{"xdp", pins, map[int]*attached{}}}
}

// Guarded has interfaces that another program is on run this one from Attach on. It has a lock
// of its own.
func (x *XDP) Guarded(by *XDP) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.guard = by
}

// Attach puts the program on an interface and says in which mode. Where it is
// already, it stays, unless another mode is asked for. Where the guard is on in such a mode,
// each frame meets one of the two programs.
func (x *XDP) Attach(ifindex int, mode Mode) (Mode, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.guard != nil {
		x.guard.mu.Lock()
		defer x.guard.mu.Unlock()
	}
	var modes []Mode
	switch mode {
	case ModeAuto, "":
		modes = []Mode{ModeNative, ModeGeneric}
	case ModeNative, ModeGeneric:
		modes = []Mode{mode}
	default:
		return "", fmt.Errorf("mode %q: want native, generic or auto", mode)
	}
	if a := x.running(ifindex); a != nil && slices.Contains(modes, Mode(a.how)) {
		return Mode(a.how), nil
	}
	if a := x.guard.running(ifindex); a != nil && slices.Contains(modes, Mode(a.how)) {
		return Mode(a.how), x.takeFrom(x.guard, ifindex)
	}
	return x.exchange(ifindex, modes)
}

// running is the link of an interface, if it is alive. Nobody has none.
func (x *XDP) running(ifindex int) *attached {
	if x == nil || x.on[ifindex] == nil || !pin.Alive(x.on[ifindex]) {
		return nil
	}
	return x.on[ifindex]
}

// exchange attaches in place of a link that has another mode, which the kernel cannot change.
// In between the kernel gets no frame. If it fails, the guard is where it was.
func (x *XDP) exchange(ifindex int, modes []Mode) (_ Mode, err error) {
	guarding := x.guard.running(ifindex)
	if guarding != nil || x.running(ifindex) != nil {
		between, err := shield(ifindex)
		if err != nil {
			return "", err
		}
		defer between.Close()
	}
	if err := x.remove(ifindex); err != nil {
		return "", err
	}
	if x.guard != nil {
		if err := x.guard.remove(ifindex); err != nil {
			return "", err
		}
	}
	mode, err := x.attachOne(ifindex, modes)
	if err != nil && guarding != nil {
		err = errors.Join(err, x.guard.attach(ifindex, Mode(guarding.how)))
	}
	return mode, err
}

// attachOne attaches in the first mode that can be.
func (x *XDP) attachOne(ifindex int, modes []Mode) (Mode, error) {
	var first error
	for _, m := range modes {
		err := x.attach(ifindex, m)
		if err == nil {
			if first != nil {
				x.log.Warn("attached in generic mode, which is slower", "event", logevent.InterfaceGeneric, "interface", port.Name(ifindex), "reason", first)
			}
			return m, nil
		}
		if first == nil {
			first = err
		}
		if errors.Is(err, ErrForeignProgram) {
			break
		}
	}
	return "", first
}

func (x *XDP) attach(ifindex int, mode Mode) error {
	flags := link.XDPDriverMode
	if mode == ModeGeneric {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: x.programFor(ifindex, mode), Interface: ifindex, Flags: flags})
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		name := port.Name(ifindex)
		return fmt.Errorf("interface %s: %w: see `ip -details link show dev %s`, and detach it with the tool that attached it", name, ErrForeignProgram, name)
	case errors.Is(err, unix.EOPNOTSUPP) && mode == ModeNative:
		return fmt.Errorf("interface %s: the driver has no native XDP: use mode generic or auto", port.Name(ifindex))
	case err != nil:
		return fmt.Errorf("interface %s: attach in mode %s: %w", port.Name(ifindex), mode, err)
	}
	return x.put(ifindex, string(mode), l)
}

// programFor is what an interface runs.
func (x *XDP) programFor(ifindex int, mode Mode) *ebpf.Program {
	if x.signalling != nil && x.n4Alone[ifindex] {
		return x.signalling
	}
	if x.first != nil && mode == ModeNative {
		return x.first
	}
	return x.prog
}

// RunFirst has native interfaces, and those to come, run a program that ends in the data
// path's; nil: that itself.
func (x *XDP) RunFirst(first *ebpf.Program) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if first == x.first {
		return nil
	}
	x.first = first
	return x.update()
}

// RunOnN4 has interfaces that carry N4 alone, and those that will, run a program that ends in
// the data path's. It closes the program when it is closed.
func (x *XDP) RunOnN4(signalling *ebpf.Program) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.signalling = signalling
	return x.update()
}

// CarriesN4Alone notes whether an interface does. The caller holds the lock.
func (x *XDP) CarriesN4Alone(ifindex int, alone bool) error {
	if x.n4Alone[ifindex] == alone {
		return nil
	}
	x.n4Alone[ifindex] = alone
	if a := x.running(ifindex); a != nil && !x.held {
		return x.updateOne(ifindex, a)
	}
	return nil
}

// update has each link run what its interface is to run, unless they are held.
func (x *XDP) update() error {
	if x.held {
		return nil
	}
	var errs []error
	for ifindex, a := range x.on {
		errs = append(errs, x.updateOne(ifindex, a))
	}
	return errors.Join(errs...)
}

// updateOne is update of one link. One that is dead runs nothing.
func (x *XDP) updateOne(ifindex int, a *attached) error {
	if err := a.Update(x.programFor(ifindex, Mode(a.how))); err != nil && pin.Alive(a) {
		return fmt.Errorf("interface %s: replace the program: %w", port.Name(ifindex), err)
	}
	return nil
}

// Attached lists the interfaces that the program is on, and how.
func (x *XDP) Attached() map[int]Mode {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[int]Mode, len(x.on))
	for ifindex, a := range x.on {
		out[ifindex] = Mode(a.how)
	}
	return out
}

// Detach takes the program off an interface. One that it is not on is not an
// error.
func (x *XDP) Detach(ifindex int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.remove(ifindex)
}

// TakeOver lets each pinned link run the program, or what RunFirst named.
func (x *XDP) TakeOver() error {
	return errors.Join(x.takeOver(), x.update())
}

// Hold lets each pinned link run what it runs, until Release. The caller holds the lock of
// both.
func (x *XDP) Hold() error {
	x.held = true
	return x.takeOver()
}

// Release lets each link run the program, or what RunFirst named.
func (x *XDP) Release() error {
	x.held = false
	return x.update()
}

// takeFrom has an interface that another program is on run this one from now on, in the
// same mode.
func (x *XDP) takeFrom(other *XDP, ifindex int) error {
	a := other.on[ifindex]
	if err := a.Update(x.programFor(ifindex, Mode(a.how))); err != nil {
		return fmt.Errorf("interface %s: replace the program: %w", port.Name(ifindex), err)
	}
	delete(other.on, ifindex)
	return x.put(ifindex, a.how, a.Link)
}

// Close lets go of the links. Those that are pinned stay.
func (x *XDP) Close() error {
	if x == nil {
		return nil
	}
	return errors.Join(x.signalling.Close(), x.close())
}
