package attach

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/netdev"
)

// Hooks are what a tcx program is on an interface for.
const (
	hookPod    = "pod"    // the host's end of a pod's veth
	hookEntry  = "entry"  // where what the kernel sends to pods of other nodes comes in
	hookUplink = "uplink" // to the other nodes
)

var hookPrograms = map[string]string{hookPod: abi.ProgCulvertPod, hookEntry: abi.ProgCulvertPod,
	hookUplink: abi.ProgCulvertUplink}

// TCX attaches the programs for pods to interfaces.
type TCX struct {
	mu       *sync.Mutex
	overlay  *ebpf.Map
	load     func() (map[string]*ebpf.Program, error)
	programs map[string]*ebpf.Program // by name; nil: not loaded
	links
}

// NewTCX attaches nothing. It calls load once programs are needed. mu is the data
// path's lock, overlay the map of that name.
func NewTCX(mu *sync.Mutex, pins *pin.Dir, overlay *ebpf.Map, load func() (map[string]*ebpf.Program, error)) *TCX {
	return &TCX{mu: mu, overlay: overlay, load: load, links: links{"tcx", pins, map[int]*attached{}}}
}

// AttachPod puts the program on the host's end of a pod's veth. The caller holds
// the lock.
func (x *TCX) AttachPod(ifindex int) error { return x.attach(ifindex, hookPod) }

// DetachPod ends that. The caller holds the lock.
func (x *TCX) DetachPod(ifindex int) error { return x.detach(ifindex, hookPod) }

// AttachUplink has what tunnels bring in by an interface decapsulated, and given
// to pods or to the kernel.
func (x *TCX) AttachUplink(ifindex int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.attach(ifindex, hookUplink)
}

// DetachUplink ends that. One that is not attached is not an error.
func (x *TCX) DetachUplink(ifindex int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.detach(ifindex, hookUplink)
}

// AttachEntry has what the kernel sends into a veth pair of this namespace
// handled like packets of pods, where it comes out: at the end of that ifindex.
// Where tunnels bring in what is for the kernel, it comes to the kernel by the
// other end; and flows of pods that the kernel translated stay with it.
func (x *TCX) AttachEntry(ifindex int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	peer, err := peerOf(ifindex)
	if err != nil {
		return fmt.Errorf("interface %s: %w", port.Name(ifindex), err)
	}
	if err := x.attach(ifindex, hookEntry); err != nil {
		return err
	}
	o := abi.Overlay{Entry: uint32(peer.Index), Translates: 1}
	copy(o.Mac[:], peer.MAC)
	return x.putOverlay(&o)
}

// DetachEntry ends that.
func (x *TCX) DetachEntry(ifindex int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.putOverlay(&abi.Overlay{}); err != nil {
		return err
	}
	return x.detach(ifindex, hookEntry)
}

func (x *TCX) putOverlay(o *abi.Overlay) error {
	if err := x.overlay.Put(uint32(0), o); err != nil {
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

// attach puts a program on an interface, where it is not yet.
func (x *TCX) attach(ifindex int, hook string) error {
	programs, err := x.Programs()
	if err != nil {
		return err
	}
	if there := x.on[ifindex]; there != nil {
		if there.how == hook && pin.Alive(there) {
			there.kept = true
			return nil
		}
		if err := x.remove(ifindex); err != nil {
			return err
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: programs[hookPrograms[hook]], Interface: ifindex, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return fmt.Errorf("interface %s: %w (Linux 6.6 or newer has it)", port.Name(ifindex), err)
	}
	return x.put(ifindex, hook, l)
}

func (x *TCX) detach(ifindex int, hook string) error {
	if there := x.on[ifindex]; there == nil || there.how != hook {
		return nil
	}
	return x.remove(ifindex)
}

// Programs are those for pods, by name. They are loaded when they are first
// needed: a gateway has no pods. The caller holds the lock.
func (x *TCX) Programs() (_ map[string]*ebpf.Program, err error) {
	if x.programs == nil {
		x.programs, err = x.load()
	}
	return x.programs, err
}

// Len is the number of interfaces that have a program.
func (x *TCX) Len() int { return len(x.on) }

// TakeOver lets each pinned hook run this build's program; same are those that are
// pinned, if they are of this build.
func (x *TCX) TakeOver(same func() map[string]*ebpf.Program) error {
	if err := x.takeOver(); err != nil || len(x.on) == 0 {
		return err
	}
	if x.programs = same(); x.programs != nil {
		return nil
	}
	return x.Release()
}

// Hold lets each pinned hook run what it runs, until Release. The caller holds the lock of
// both.
func (x *TCX) Hold() error { return x.takeOver() }

// Release lets each hook run this build's program.
func (x *TCX) Release() error {
	if len(x.on) == 0 {
		return nil
	}
	programs, err := x.Programs()
	if err != nil {
		return err
	}
	for ifindex, a := range x.on {
		if err := a.Update(programs[hookPrograms[a.how]]); err != nil {
			return fmt.Errorf("interface %s: replace the program: %w", port.Name(ifindex), err)
		}
	}
	return nil
}

// Close lets go of the links and programs. Those that are pinned stay.
func (x *TCX) Close() error {
	if x == nil {
		return nil
	}
	errs := []error{x.close()}
	for _, p := range x.programs {
		errs = append(errs, p.Close())
	}
	x.programs = nil
	return errors.Join(errs...)
}

// Sweep detaches what nobody attached since Open. The caller holds the lock.
func (x *TCX) Sweep() error {
	var errs []error
	for ifindex, a := range x.on {
		if a.kept {
			continue
		}
		if a.how == hookEntry {
			errs = append(errs, x.putOverlay(&abi.Overlay{}))
		}
		errs = append(errs, x.remove(ifindex))
	}
	return errors.Join(errs...)
}
