package adjacency

import (
	"net/netip"
	"strings"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Path names the destinations that a tunnel's packets have one after another: the segments of
// a list in the order of travel, or the remote end alone.
type Path string

// PathOf is the path through these destinations.
func PathOf(ends ...netip.Addr) Path {
	var b strings.Builder
	for _, a := range ends {
		b.WriteString(a.String())
		b.WriteByte(' ')
	}
	return Path(b.String())
}

// Toward is the next hop of what goes to the first destination, and on to the others. The
// caller holds the lock.
func (t *Table) Toward(ends ...netip.Addr) Key {
	k := Key{NextHop: ends[0]}
	if len(t.pathMTU) > 0 {
		k.MTU = t.pathMTU[PathOf(ends...)]
	}
	return k
}

// SetPathMTU changes what Toward returns from then on. An mtu of 0: as the links have it. The
// adjacency leads where the former one does until it is resolved. The caller holds the lock,
// and calls done when the path's users have been written again.
func (t *Table) SetPathMTU(mtu int, ends ...netip.Addr) (done func() error, err error) {
	former := t.Toward(ends...)
	next := Key{NextHop: former.NextHop, MTU: mtu}
	if _, err := t.Acquire(next); err != nil {
		return nil, err
	}
	if err := t.begin(next, former); err != nil {
		return nil, t.OrRelease(err, []Key{next})
	}
	if mtu == 0 {
		delete(t.pathMTU, PathOf(ends...))
	} else {
		t.pathMTU[PathOf(ends...)] = mtu
	}
	return func() error { return t.Release(next) }, nil
}

// begin has an adjacency that leads nowhere yet lead where another one does.
func (t *Table) begin(next, former Key) error {
	a, b := t.entries[next], t.entries[former]
	if a == nil || b == nil || a.now().Flags != 0 {
		return nil
	}
	hop := b.now()
	if hop.Flags&uint8(abi.NextHopFlagsNEXT_HOP_READY) == 0 { // nowhere, or several, which are to be referred to
		return nil
	}
	if next.MTU != 0 {
		hop.Mtu = min(hop.Mtu, uint16(next.MTU))
	}
	return t.point(a, hop)
}

// now is the half that packets meet.
func (a *adjacency) now() abi.NextHop { return a.value.Half[a.value.Current&1] }

// MTU is the least one of where an adjacency leads; 0: nothing says. The caller holds the
// lock.
func (t *Table) MTU(k Key) int {
	a := t.entries[k]
	if a == nil {
		return 0
	}
	least := int(a.now().Mtu)
	for _, m := range a.members {
		if mtu := t.MTU(m); mtu != 0 && (least == 0 || mtu < least) {
			least = mtu
		}
	}
	return least
}
