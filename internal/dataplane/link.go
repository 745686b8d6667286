package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// maxStations bounds the MAC addresses of Ethernet sessions that are known at
// once: those not heard of for longest are forgotten first.
const maxStations = 65536

// pdrFrames is PDR_FRAMES (bpf/def/tables.h).
const pdrFrames = 0x80

// ethernetLink is a link of Ethernet sessions that was put since Open.
type ethernetLink struct {
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

func (l Link) key() AdjacencyKey { return AdjacencyKey{Interface: l.Interface} }

// PutLink has frames from a link given to Ethernet sessions. It must be put
// before rules name it, and again when its interface, which need not be there
// yet, is another one. What came by it to this node itself does not any more.
func (d *DataPlane) PutLink(l Link) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.putLink(l); err != nil {
		return fmt.Errorf("link %s: %w", l, err)
	}
	return nil
}

func (d *DataPlane) putLink(l Link) error {
	if !d.Sessions.room {
		return errNoSessions
	}
	if l.VLAN > 4094 {
		return errors.New("want a VLAN id from 1 to 4094, or none")
	}
	var port abi.PortKey
	if i, err := net.InterfaceByName(l.Interface); err == nil {
		port = abi.PortKey{Ifindex: uint32(i.Index), OuterVlan: l.VLAN}
	}
	old := d.ethernet[l]
	if old != nil && old.port == port {
		return nil
	}
	if port.Ifindex != 0 && d.steersPort(port) {
		return errors.New("frames from there are steered elsewhere")
	}
	index, err := d.acquire(l.key())
	if err != nil {
		return err
	}
	next := &ethernetLink{number: index<<12 | uint32(l.VLAN), port: port}
	if err := d.placeLink(next); err != nil {
		return errors.Join(err, d.release(l.key()))
	}
	d.ethernet[l] = next
	if old != nil { // the interface is another one of that name
		return d.removeLink(l, old)
	}
	return nil
}

// placeLink has frames of the link's port given to it.
func (d *DataPlane) placeLink(link *ethernetLink) error {
	if link.port.Ifindex == 0 {
		return nil
	}
	err := d.portRules.Put(link.port, abi.Target{Kind: uint32(abi.TargetKindTARGET_LINK), Index: link.number})
	if err != nil {
		return err
	}
	return d.markSteered(int(link.port.Ifindex))
}

// steersPort says whether a steering entry has frames of that port.
func (d *DataPlane) steersPort(port abi.PortKey) bool {
	for _, s := range d.steerings {
		if s.model.Interface != "" && s.port == port {
			return true
		}
	}
	return false
}

func (d *DataPlane) removeLink(l Link, link *ethernetLink) error {
	if link.port.Ifindex == 0 {
		return d.release(l.key())
	}
	return errors.Join(d.portRules.Delete(link.port), d.markSteered(int(link.port.Ifindex)), d.release(l.key()))
}

// DeleteLink ends that. One that is not there is not an error.
func (d *DataPlane) DeleteLink(l Link) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	link := d.ethernet[l]
	if link == nil {
		return nil
	}
	delete(d.ethernet, l)
	return d.removeLink(l, link)
}

// linkOf is the link of a number; the zero value if there is none.
func (d *DataPlane) linkOf(number uint32) Link {
	for l, link := range d.ethernet {
		if link.number == number {
			return l
		}
	}
	return Link{}
}

// linkEntry is what an Ethernet session has in pdr_by_ue. No packet asks for it:
// the second half is neither 0 nor that of an IPv4 address.
func linkEntry(session uint64) (e abi.In6) {
	binary.BigEndian.PutUint64(e.B[:], session)
	e.B[8], e.B[15] = 0xff, 1
	return e
}

func isLinkEntry(e abi.In6) bool { return e == linkEntry(binary.BigEndian.Uint64(e.B[:])) }

// isLink says whether frames of a port are a link's.
func (d *DataPlane) isLink(port abi.PortKey) bool {
	for _, link := range d.ethernet {
		if link.port == port {
			return true
		}
	}
	return false
}

// InjectFor is Inject of a frame on a link, or InjectKept, for the rules of an
// Ethernet session there whatever its destination is.
func (d *DataPlane) InjectFor(session uint64, frame []byte, ifindex int, kept bool) error {
	d.mu.Lock()
	index := d.Sessions.tables.ues.Get(linkEntry(session))
	d.mu.Unlock()
	if index == 0 {
		return &NoSessionError{session}
	}
	meta, err := binary.Append(nil, binary.NativeEndian, &abi.Given{Magic: givenMagic, Session: session, Pdr: index})
	if err != nil {
		return err
	}
	if kept {
		meta = append(meta, keptMark...)
	}
	return d.inject(meta, frame, ifindex)
}

// givenMagic is GIVEN_MAGIC (bpf/def/tables.h).
const givenMagic = 0x6376657468

// Station is a host behind an Ethernet session: what it sent went to the session's
// link.
type Station struct {
	Session uint64
	MAC     [6]byte
	Idle    time.Duration // since it was heard, within 0.2 s
}

// stationTick is the unit of what the table says of time (STATION_TIME_SHIFT in
// bpf/def/tables.h).
const stationTick = 1 << 27 * time.Nanosecond

// Stations are the hosts that sessions on links have now, in no order.
func (d *DataPlane) Stations() ([]Station, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.maps == nil {
		return nil, errClosed
	}
	table := d.maps[abi.MapStation]
	keys, values := make([]abi.StationKey, table.MaxEntries()), make([]abi.Station, table.MaxEntries())
	var cursor ebpf.MapBatchCursor
	n, err := table.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which is the end
		return nil, fmt.Errorf("read table station: %w", err)
	}
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	var out []Station
	for i, s := range values[:n] {
		if d.hasStation(keys[i].Link, s) {
			idle := uint32(now/uint64(stationTick)) - s.Heard
			out = append(out, Station{Session: s.Session, MAC: keys[i].Mac, Idle: time.Duration(int32(idle)) * stationTick})
		}
	}
	return out, nil
}

// hasStation asks what packets ask (is_on_link in bpf/ethernet.h).
func (d *DataPlane) hasStation(link uint32, s abi.Station) bool {
	if s.Pdr == 0 || s.Pdr >= d.sessionTables.pdr.Len {
		return false
	}
	head := d.sessionTables.pdr.Get(s.Pdr)
	return head.Action != 0 && head.Qfi&pdrFrames != 0 && head.Source4 == link && head.Source6 == s.Session
}
