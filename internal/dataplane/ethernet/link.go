// Package ethernet owns the links of Ethernet sessions: interfaces, or VLANs on them,
// whose frames are for such sessions. Links has the data path's lock: Put and Delete
// take it, the other methods expect the caller to hold it.
package ethernet

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// Link is where an Ethernet session's data network is: an interface that XDP is
// attached to, or one VLAN on it. The zero value: none.
type Link struct {
	Interface string
	VLAN      uint16 // id; 0: no tag
}

// Links are those that were put since Open.
type Links struct {
	mu      *sync.Mutex
	room    bool // for sessions
	hops    *adjacency.Table
	targets *target.Table
	links   map[Link]*entry
	// Steered says whether steering has frames of a port. Who opens the data path
	// sets it.
	Steered func(abi.PortKey) bool
}

// New has no links; room says whether there can be sessions. mu is the data path's
// lock.
func New(mu *sync.Mutex, room bool, hops *adjacency.Table, targets *target.Table) *Links {
	return &Links{mu: mu, room: room, hops: hops, targets: targets, links: map[Link]*entry{}}
}

// NumberOf is the number of a link in the tables; 0: it was not put. The caller
// holds the lock.
func (x *Links) NumberOf(l Link) uint32 {
	if e := x.links[l]; e != nil {
		return e.number
	}
	return 0
}

// Has says whether frames of a port are a link's. The caller holds the lock.
func (x *Links) Has(port abi.PortKey) bool {
	return table.KeyOf(x.links, func(e *entry) bool { return e.port == port }) != Link{}
}

// entry is a link of Ethernet sessions that was put since Open.
type entry struct {
	number uint32      // FORWARD_LINK
	port   abi.PortKey // ifindex 0: the interface is not there
}

// String is the link as people write it.
func (l Link) String() string {
	if l.VLAN == 0 {
		return l.Interface
	}
	return fmt.Sprintf("%s.%d", l.Interface, l.VLAN)
}

// Key is the next hop of frames that leave by the link.
func (l Link) Key() adjacency.Key { return adjacency.Key{Interface: l.Interface} }

// Put has frames from a link given to Ethernet sessions. It must be put
// before rules name it, and again when its interface, which need not be there
// yet, is another one. What came by it to this node itself does not any more.
func (x *Links) Put(l Link) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.put(l); err != nil {
		return fmt.Errorf("link %s: %w", l, err)
	}
	return nil
}

func (x *Links) put(l Link) error {
	if !x.room {
		return &table.FullError{Table: abi.MapPdr, Limit: "sessions"}
	}
	if l.VLAN > 4094 {
		return errors.New("want a VLAN id from 1 to 4094, or none")
	}
	var port abi.PortKey
	if i, err := net.InterfaceByName(l.Interface); err == nil {
		port = abi.PortKey{Ifindex: uint32(i.Index), OuterVlan: l.VLAN}
	}
	old := x.links[l]
	if old != nil && old.port == port {
		return nil
	}
	if port.Ifindex != 0 && x.Steered(port) {
		return errors.New("frames from there are steered elsewhere")
	}
	index, err := x.hops.Acquire(l.Key())
	if err != nil {
		return err
	}
	next := &entry{number: index<<12 | uint32(l.VLAN), port: port}
	if port.Ifindex != 0 {
		to := abi.Target{Kind: uint32(abi.TargetKindTARGET_LINK), Index: next.number}
		if err := x.targets.PutPort(port, to); err != nil {
			return errors.Join(err, x.hops.Release(l.Key()))
		}
	}
	x.links[l] = next
	if old != nil { // the interface is another one of that name
		return x.remove(l, old)
	}
	return nil
}

func (x *Links) remove(l Link, link *entry) error {
	if link.port.Ifindex == 0 {
		return x.hops.Release(l.Key())
	}
	return errors.Join(x.targets.DeletePort(link.port), x.hops.Release(l.Key()))
}

// Delete ends that. One that is not there is not an error.
func (x *Links) Delete(l Link) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	link := x.links[l]
	if link == nil {
		return nil
	}
	delete(x.links, l)
	return x.remove(l, link)
}

// At returns the link of a number, or the zero value if no link has it.
func (x *Links) At(number uint32) Link {
	return table.KeyOf(x.links, func(e *entry) bool { return e.number == number })
}
