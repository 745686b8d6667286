package netdev

import (
	"encoding/binary"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Pods come and go all the time, and what the kernel has of them is what was put
// there: their interfaces, and the routes and neighbours on these, make no snapshot,
// and no event about them has anything read again. A snapshot finds their interfaces
// by name and index as they are now.

// podNameLength is of the host's ends of pods' veths, and podNamePrefix how these
// begin; the rest are hexadecimal digits.
const (
	podNameLength = 15
	podNamePrefix = "culv"
)

// IsPod says whether an interface is the host's end of a pod's veth, by its name.
func IsPod(name string) bool {
	rest, is := strings.CutPrefix(name, podNamePrefix)
	return is && len(name) == podNameLength && strings.Trim(rest, "0123456789abcdef") == ""
}

// IPVSName is the interface where kube-proxy in the mode ipvs has the addresses of Services. What IPVS
// translates passes none of the kernel's hooks for what is forwarded.
const IPVSName = "kube-ipvs0"

// podLinks are the host's ends of pods' veths that exist.
type podLinks struct {
	mu      sync.RWMutex
	last    uint64 // how many were put
	byIndex map[int]podLink
	byName  map[string]int
}

type podLink struct {
	Link
	number uint64 // of when it was put
}

// now is for set: a list that is read from now on may lack those that come later.
func (p *podLinks) now() uint64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.last
}

// set replaces the list by one that was read since then.
func (p *podLinks) set(list []Link, since uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.byIndex
	p.byIndex, p.byName = make(map[int]podLink, len(list)), make(map[string]int, len(list))
	for _, l := range list {
		p.byIndex[l.Index], p.byName[l.Name] = podLink{l, 0}, l.Index
	}
	for index, l := range before {
		if l.number > since {
			p.byIndex[index], p.byName[l.Name] = l, index
		}
	}
}

func (p *podLinks) put(l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byIndex == nil {
		p.byIndex, p.byName = map[int]podLink{}, map[string]int{}
	}
	p.last++
	p.byIndex[l.Index], p.byName[l.Name] = podLink{l, p.last}, l.Index
}

func (p *podLinks) drop(ifindex int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byName, p.byIndex[ifindex].Name)
	delete(p.byIndex, ifindex)
}

// link returns a link by its index, or nil.
func (p *podLinks) link(ifindex int) (Link, bool) {
	if p == nil {
		return Link{}, false
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	l, there := p.byIndex[ifindex]
	return l.Link, there
}

func (p *podLinks) named(name string) (Link, bool) {
	if p == nil {
		return Link{}, false
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	l, there := p.byIndex[p.byName[name]]
	return l.Link, there
}

func (p *podLinks) has(ifindex int) bool {
	_, there := p.link(ifindex)
	return there
}

// takes follows a NETLINK_ROUTE notification. It says whether that is about a pod, and
// nothing else.
func (p *podLinks) takes(m *syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return p.takesLink(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// The index is at the same place in ifaddrmsg and ndmsg.
		return len(m.Data) >= 8 && p.has(int(binary.NativeEndian.Uint32(m.Data[4:])))
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg {
			return false
		}
		attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
		oif := attribute(attrs, unix.RTA_OIF)
		return err == nil && len(oif) == 4 && p.has(int(binary.NativeEndian.Uint32(oif)))
	}
	return false
}

func (p *podLinks) takesLink(m *syscall.NetlinkMessage) bool {
	header := unix.NlMsghdr(m.Header)
	found, err := netlink.LinkDeserialize(&header, m.Data)
	if err != nil {
		return false
	}
	l := newLink(found)
	switch {
	case !IsPod(l.Name):
		p.drop(l.Index) // it has another name now
		return false
	case m.Header.Type == unix.RTM_DELLINK:
		p.drop(l.Index)
	default:
		p.put(l)
	}
	return true
}

// aboutDevice returns the parts that a notification of the netlink family netdev
// outdates. NETLINK_ROUTE also announces devices that come and go.
func (w *Watcher) aboutDevice(m *syscall.NetlinkMessage) uint32 {
	const changed = 4 // NETDEV_CMD_DEV_CHANGE_NTF
	if len(m.Data) < nl.SizeofGenlmsg || m.Data[0] != changed {
		return 0
	}
	attrs, err := nl.ParseRouteAttr(m.Data[nl.SizeofGenlmsg:])
	v := attribute(attrs, netdevAttrIfindex)
	if err != nil || len(v) != 4 {
		return dirtyLinks
	}
	// NETLINK_ROUTE may not have announced a new device yet.
	if l, err := w.kernel.handle.LinkByIndex(int(binary.NativeEndian.Uint32(v))); err == nil && IsPod(l.Attrs().Name) {
		return 0
	}
	return dirtyLinks
}
