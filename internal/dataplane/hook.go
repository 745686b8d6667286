package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/netdev"
)

// hook is what a tcx program is on an interface for.
type hook string

const (
	hookPod    hook = "pod"    // the host's end of a pod's veth
	hookEntry  hook = "entry"  // where what the kernel sends to pods of other nodes comes in
	hookUplink hook = "uplink" // to the other nodes
)

var hookPrograms = map[hook]string{hookPod: abi.ProgCulvertPod, hookEntry: abi.ProgCulvertPod,
	hookUplink: abi.ProgCulvertUplink}

// hooked is an interface with one of the programs for pods.
type hooked struct {
	hook hook
	link link.Link
	kept bool // wanted since Open
}

func hookPin(ifindex int, h hook) string { return fmt.Sprintf("tcx_%d_%s", ifindex, h) }

func parseHookPin(name string) (ifindex int, h hook, ok bool) {
	_, err := fmt.Sscanf(strings.ReplaceAll(name, "_", " "), "tcx %d %s", &ifindex, &h)
	ok = err == nil && hookPrograms[h] != "" && hookPin(ifindex, h) == name
	return ifindex, h, ok
}

// AttachUplink has what tunnels bring in by an interface decapsulated, and given
// to pods or to the kernel.
func (d *DataPlane) AttachUplink(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attachHook(ifindex, hookUplink)
}

// DetachUplink ends that. One that is not attached is not an error.
func (d *DataPlane) DetachUplink(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.detachHook(ifindex, hookUplink)
}

// AttachEntry has what the kernel sends into a veth pair of this namespace
// handled like packets of pods, where it comes out: at the end of that ifindex.
// Where tunnels bring in what is for the kernel, it comes to the kernel by the
// other end; and flows of pods that the kernel translated stay with it.
func (d *DataPlane) AttachEntry(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	peer, err := peerOf(ifindex)
	if err != nil {
		return fmt.Errorf("interface %s: %w", interfaceName(ifindex), err)
	}
	if err := d.attachHook(ifindex, hookEntry); err != nil {
		return err
	}
	o := abi.Overlay{Entry: uint32(peer.Index), Translates: 1}
	copy(o.Mac[:], peer.MAC)
	return d.putOverlay(&o)
}

// DetachEntry ends that.
func (d *DataPlane) DetachEntry(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.putOverlay(&abi.Overlay{}); err != nil {
		return err
	}
	return d.detachHook(ifindex, hookEntry)
}

func (d *DataPlane) putOverlay(o *abi.Overlay) error {
	if err := d.maps[abi.MapOverlay].Put(uint32(0), o); err != nil {
		return fmt.Errorf("write table overlay: %w", err)
	}
	return nil
}

// peerOf is the other end of a veth pair.
func peerOf(ifindex int) (netdev.Link, error) {
	inspector, err := netdev.NewInspector()
	if err != nil {
		return netdev.Link{}, err
	}
	defer inspector.Close()
	s, err := inspector.Snapshot()
	if err != nil {
		return netdev.Link{}, err
	}
	end, ok := s.LinkByIndex(ifindex)
	if !ok || end.Kind != "veth" || end.ParentElsewhere {
		return netdev.Link{}, errors.New("want a veth whose peer is in this network namespace")
	}
	peer, ok := s.LinkByIndex(end.Parent)
	if !ok {
		return netdev.Link{}, errors.New("the peer is gone")
	}
	return peer, nil
}

// attachHook puts a program on an interface, where it is not yet.
func (d *DataPlane) attachHook(ifindex int, h hook) error {
	if err := d.loadPodPrograms(); err != nil {
		return err
	}
	if there := d.hooks[ifindex]; there != nil {
		if there.hook == h && alive(there.link) {
			there.kept = true
			return nil
		}
		if err := d.unhook(ifindex); err != nil {
			return err
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: d.podPrograms[hookPrograms[h]], Interface: ifindex, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return fmt.Errorf("interface %s: %w (Linux 6.6 or newer has it)", interfaceName(ifindex), err)
	}
	if d.pins != nil {
		if err := l.Pin(d.pins.at(dirLinks, hookPin(ifindex, h))); err != nil {
			return errors.Join(fmt.Errorf("interface %s: pin the link: %w", interfaceName(ifindex), err), l.Close())
		}
	}
	d.hooks[ifindex] = &hooked{hook: h, link: l, kept: true}
	return nil
}

func (d *DataPlane) detachHook(ifindex int, h hook) error {
	if there := d.hooks[ifindex]; there == nil || there.hook != h {
		return nil
	}
	return d.unhook(ifindex)
}

func (d *DataPlane) unhook(ifindex int) error {
	h := d.hooks[ifindex]
	if err := h.link.Detach(); err != nil && alive(h.link) {
		return fmt.Errorf("interface %s: detach: %w", interfaceName(ifindex), err)
	}
	if d.pins != nil {
		err := os.Remove(d.pins.at(dirLinks, hookPin(ifindex, h.hook)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("interface %s: unpin the link: %w", interfaceName(ifindex), err)
		}
	}
	delete(d.hooks, ifindex)
	return h.link.Close()
}

// loadPodPrograms loads them when they are first needed: a gateway has no pods.
func (d *DataPlane) loadPodPrograms() error {
	if d.podPrograms != nil {
		return nil
	}
	spec, err := loadSpec()
	if err != nil {
		return err
	}
	d.prepare(spec)
	coll, err := d.loadPrograms(spec, d.maps, abi.ProgCulvertPod, abi.ProgCulvertUplink)
	if err != nil {
		return err
	}
	d.podPrograms = coll.Programs
	coll.Programs = nil
	coll.Close()
	if d.pins == nil {
		return nil
	}
	var errs []error
	for name, p := range d.podPrograms {
		errs = append(errs, d.replacePinned(p, name))
	}
	return errors.Join(errs...)
}

// takeOverHooks lets each pinned hook run this build's program. Those whose
// interface is gone are removed.
func (d *DataPlane) takeOverHooks(spec *ebpf.CollectionSpec) error {
	entries, err := os.ReadDir(d.pins.at(dirLinks))
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for _, e := range entries {
		ifindex, h, ok := parseHookPin(e.Name())
		if !ok {
			continue
		}
		l, err := d.pins.openLink(e.Name())
		if err != nil {
			return err
		}
		if l != nil {
			d.hooks[ifindex] = &hooked{hook: h, link: l}
		}
	}
	if len(d.hooks) == 0 {
		return nil
	}
	if d.samePodPrograms(spec) {
		return nil
	}
	if err := d.loadPodPrograms(); err != nil {
		return err
	}
	for ifindex, h := range d.hooks {
		if err := h.link.Update(d.podPrograms[hookPrograms[h.hook]]); err != nil {
			return fmt.Errorf("interface %s: replace the program: %w", interfaceName(ifindex), err)
		}
	}
	return nil
}

// samePodPrograms takes over the pinned programs, if they are of this build.
func (d *DataPlane) samePodPrograms(spec *ebpf.CollectionSpec) bool {
	pod := d.pins.sameProgram(abi.ProgCulvertPod, spec, d.maps, d.build)
	uplink := d.pins.sameProgram(abi.ProgCulvertUplink, spec, d.maps, d.build)
	if pod == nil || uplink == nil {
		for _, p := range []*ebpf.Program{pod, uplink} {
			if p != nil {
				p.Close()
			}
		}
		return false
	}
	d.podPrograms = map[string]*ebpf.Program{abi.ProgCulvertPod: pod, abi.ProgCulvertUplink: uplink}
	return true
}

// sweepHooks detaches what nobody attached since Open.
func (d *DataPlane) sweepHooks() error {
	var errs []error
	for ifindex, h := range d.hooks {
		if h.kept {
			continue
		}
		if h.hook == hookEntry {
			errs = append(errs, d.putOverlay(&abi.Overlay{}))
		}
		errs = append(errs, d.unhook(ifindex))
	}
	return errors.Join(errs...)
}
