package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Mode is how the program is attached to an interface.
type Mode string

const (
	ModeNative  Mode = "native"  // in the driver
	ModeGeneric Mode = "generic" // in the stack, slower; any interface
	ModeAuto    Mode = "auto"    // native where the driver can, else generic
)

// ErrForeignProgram says that somebody else's XDP program is on an interface.
var ErrForeignProgram = errors.New("another XDP program is attached")

type attachment struct {
	link link.Link
	mode Mode
}

// alive says whether a link's interface is still there.
func alive(l link.Link) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	if info.TCX() != nil {
		return info.TCX().Ifindex != 0
	}
	return info.XDP() != nil && info.XDP().Ifindex != 0
}

func linkPin(ifindex int, mode Mode) string { return fmt.Sprintf("xdp_%d_%s", ifindex, mode) }

func parseLinkPin(name string) (ifindex int, mode Mode, ok bool) {
	_, err := fmt.Sscanf(strings.ReplaceAll(name, "_", " "), "xdp %d %s", &ifindex, &mode)
	ok = err == nil && (mode == ModeNative || mode == ModeGeneric) && linkPin(ifindex, mode) == name
	return ifindex, mode, ok
}

// Attach puts the program on an interface and says in which mode. Where it is
// already, it stays, unless another mode is asked for.
func (d *DataPlane) Attach(ifindex int, mode Mode) (Mode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var modes []Mode
	switch mode {
	case ModeAuto, "":
		modes = []Mode{ModeNative, ModeGeneric}
	case ModeNative, ModeGeneric:
		modes = []Mode{mode}
	default:
		return "", fmt.Errorf("mode %q: want native, generic or auto", mode)
	}
	if a := d.links[ifindex]; a != nil {
		if (len(modes) > 1 || a.mode == mode) && alive(a.link) {
			return a.mode, nil
		}
		if err := d.detach(ifindex); err != nil {
			return "", err
		}
	}
	var first error
	for _, m := range modes {
		err := d.attach(ifindex, m)
		if err == nil {
			if first != nil {
				d.log.Warn("attached in generic mode, which is slower", "interface", interfaceName(ifindex), "reason", first)
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

func (d *DataPlane) attach(ifindex int, mode Mode) error {
	flags := link.XDPDriverMode
	if mode == ModeGeneric {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: d.prog, Interface: ifindex, Flags: flags})
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		name := interfaceName(ifindex)
		return fmt.Errorf("interface %s: %w: see `ip -details link show dev %s`, and detach it with the tool that attached it", name, ErrForeignProgram, name)
	case errors.Is(err, unix.EOPNOTSUPP) && mode == ModeNative:
		return fmt.Errorf("interface %s: the driver has no native XDP: use mode generic or auto", interfaceName(ifindex))
	case err != nil:
		return fmt.Errorf("interface %s: attach in mode %s: %w", interfaceName(ifindex), mode, err)
	}
	if d.pins != nil {
		if err := l.Pin(d.pins.at(dirLinks, linkPin(ifindex, mode))); err != nil {
			return errors.Join(fmt.Errorf("interface %s: pin the link: %w", interfaceName(ifindex), err), l.Close())
		}
	}
	d.links[ifindex] = &attachment{link: l, mode: mode}
	return nil
}

// Attached lists the interfaces that the program is on, and how.
func (d *DataPlane) Attached() map[int]Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[int]Mode, len(d.links))
	for ifindex, a := range d.links {
		out[ifindex] = a.mode
	}
	return out
}

// Detach takes the program off an interface. One that it is not on is not an
// error.
func (d *DataPlane) Detach(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.detach(ifindex)
}

func (d *DataPlane) detach(ifindex int) error {
	a := d.links[ifindex]
	if a == nil {
		return nil
	}
	// Not by letting go of the last reference: the kernel would detach later.
	if err := a.link.Detach(); err != nil && alive(a.link) {
		return fmt.Errorf("interface %s: detach: %w", interfaceName(ifindex), err)
	}
	if d.pins != nil {
		err := os.Remove(d.pins.at(dirLinks, linkPin(ifindex, a.mode)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("interface %s: unpin the link: %w", interfaceName(ifindex), err)
		}
	}
	delete(d.links, ifindex)
	return a.link.Close()
}

// takeOverLinks lets each pinned link run this build's program. Links whose
// interface is gone are removed.
func (d *DataPlane) takeOverLinks() error {
	entries, err := os.ReadDir(d.pins.at(dirLinks))
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for _, e := range entries {
		ifindex, mode, ok := parseLinkPin(e.Name())
		if !ok {
			continue // a hook: checkOurs knew the name
		}
		l, err := d.pins.openLink(e.Name())
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		d.links[ifindex] = &attachment{link: l, mode: mode}
		if err := l.Update(d.prog); err != nil {
			return fmt.Errorf("interface %s: replace the program: %w", interfaceName(ifindex), err)
		}
	}
	return nil
}

// openLink opens a pinned link. That of an interface that is gone is removed; it
// is nil.
func (p *pins) openLink(name string) (link.Link, error) {
	path := p.at(dirLinks, name)
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, fmt.Errorf("open pinned link %s: %w", name, err)
	}
	if alive(l) {
		return l, nil
	}
	if err := errors.Join(os.Remove(path), l.Close()); err != nil {
		return nil, fmt.Errorf("remove the link of an interface that is gone: %w", err)
	}
	return nil, nil
}

// interfaceName is for messages.
func interfaceName(ifindex int) string {
	if i, err := net.InterfaceByIndex(ifindex); err == nil {
		return i.Name
	}
	return fmt.Sprintf("#%d", ifindex)
}
