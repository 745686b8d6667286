package netdev

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/logevent"
)

// keeper holds the neighbours that the data path sends to. The kernel does not
// see those packets: without help it would forget the neighbours, and not
// notice when one moves to another MAC address.
type keeper struct {
	mu      sync.Mutex
	keys    []Key
	kept    map[neighbourKey]bool // told to the kernel
	last    time.Time             // of the solicitation of unresolved ones
	changed chan struct{}         // keys are others
}

// KeepAlive says which next hops are in use, in place of those said before.
// Unresolved ones are asked for at once and then again and again; resolved ones
// are checked as if the kernel itself sent to them, so that a new MAC address
// is noticed. The kernel goes on with that when the daemon is gone, so that a
// daemon that starts again finds them resolved.
func (w *Watcher) KeepAlive(keys []Key) {
	w.keeper.mu.Lock()
	w.keeper.keys = slices.Clone(keys)
	w.keeper.last = time.Time{}
	w.keeper.mu.Unlock()
	select {
	case w.keeper.changed <- struct{}{}:
	default:
	}
}

// keep does what KeepAlive requests until ctx ends. It runs apart from KeepAlive's
// caller, who holds up changes of the data path and must not wait for the kernel's
// list of neighbours.
func (w *Watcher) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.keeper.changed:
		}
		w.renew(func(n *Neighbour) bool { return n == nil || !n.Managed || !n.Usable() })
		sleep(ctx, coalesce)
	}
}

// renew uses the neighbours in use that want holds for, and releases the others.
func (w *Watcher) renew(want func(*Neighbour) bool) {
	if s := w.current.Load(); s != nil {
		w.use(s, want)
		w.release(s)
	}
}

// solicit asks for those that a new snapshot lacks. Each solicitation changes
// neighbours and so makes snapshots: not more than one in half a second.
func (w *Watcher) solicit(s *Snapshot) {
	w.keeper.mu.Lock()
	now := time.Now()
	early := now.Sub(w.keeper.last) < 500*time.Millisecond
	if !early {
		w.keeper.last = now
	}
	w.keeper.mu.Unlock()
	if !early {
		w.use(s, func(n *Neighbour) bool { return n == nil || n.State&NUDFailed != 0 })
	}
}

// use tells the kernel that neighbours are sent to, those that want holds for.
func (w *Watcher) use(s *Snapshot, want func(*Neighbour) bool) {
	targets := w.targets(s)
	if len(targets) == 0 {
		return
	}
	// Not those of the snapshot: telling the kernel that a neighbour is used,
	// when it was made permanent meanwhile, would undo that.
	list, err := w.kernel.neighbours()
	if err != nil {
		w.log.Warn("cannot keep neighbours alive", "event", logevent.NeighbourFailed, "error", err)
		return
	}
	now := make(map[neighbourKey]*Neighbour, len(list))
	for _, n := range list {
		now[neighbourKey{n.Ifindex, n.Addr}] = &n
	}
	for k := range targets {
		n := now[k]
		// A permanent entry needs no probe, and would lose its permanence.
		if n != nil && n.State&(NUDPermanent|NUDNoARP) != 0 || !want(n) {
			continue
		}
		w.keeper.mu.Lock()
		w.keeper.kept[k] = true
		w.keeper.mu.Unlock()
		w.tell(k, n == nil, netlink.NTF_EXT_MANAGED)
	}
}

// release gives neighbours that are no longer in use back to the kernel.
func (w *Watcher) release(s *Snapshot) {
	targets := w.targets(s)
	var gone []neighbourKey
	w.keeper.mu.Lock()
	for k := range w.keeper.kept {
		if !targets[k] {
			gone = append(gone, k)
			delete(w.keeper.kept, k)
		}
	}
	w.keeper.mu.Unlock()
	for _, k := range gone {
		if n := s.lookup().neighbours[k]; n != nil && n.State&NUDPermanent == 0 {
			w.tell(k, false, 0)
		}
	}
}

// tell marks a neighbour as used, and as managed or not. The kernel starts
// resolution, or reachability confirmation, of what needs it. A new entry is
// not made in place of one that somebody else made in the same moment.
func (w *Watcher) tell(k neighbourKey, isNew bool, extended int) {
	n := &netlink.Neigh{
		LinkIndex: k.ifindex,
		IP:        k.addr.AsSlice(),
		Family:    unix.AF_INET,
		Flags:     netlink.NTF_USE,
		FlagsExt:  extended,
	}
	if k.addr.Is6() {
		n.Family = unix.AF_INET6
	}
	set := w.kernel.handle.NeighSet
	if isNew {
		set = w.kernel.handle.NeighAdd
	}
	err := set(n)
	if errors.Is(err, unix.EEXIST) {
		return // the next probe sees it
	}
	// A link that went away meanwhile takes its neighbours with it, and the
	// next snapshot says so.
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENETDOWN) {
		w.log.Warn("cannot keep a neighbour alive", "event", logevent.NeighbourFailed, "address", k.addr, "ifindex", k.ifindex, "error", err)
	}
}

// targets finds the neighbours of the keys in use.
func (w *Watcher) targets(s *Snapshot) map[neighbourKey]bool {
	w.keeper.mu.Lock()
	keys := w.keeper.keys
	w.keeper.mu.Unlock()
	out := make(map[neighbourKey]bool, len(keys))
	for _, k := range keys {
		l, addr, err := s.locate(k)
		if err != nil || l == nil || !addr.IsValid() || !l.Up || l.Loopback || s.lookup().local[addr] {
			continue
		}
		out[neighbourKey{l.Index, addr}] = true
	}
	return out
}
