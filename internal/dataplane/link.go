package dataplane

import (
	"encoding/binary"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// InjectFor is Inject of a frame on a link, or InjectKept, for the rules of an
// Ethernet session there whatever its destination is.
func (d *DataPlane) InjectFor(id uint64, frame []byte, ifindex int, kept bool) error {
	d.mu.Lock()
	index := d.Sessions.LinkEntry(id)
	d.mu.Unlock()
	if index == 0 {
		return &session.MissingError{ID: id}
	}
	meta, err := binary.Append(nil, binary.NativeEndian, &abi.Given{Magic: givenMagic, Session: id, Pdr: index})
	if err != nil {
		return err
	}
	if kept {
		meta = append(meta, xdp.KeptMark...)
	}
	return d.Frames.InjectWith(meta, frame, ifindex)
}

// givenMagic is GIVEN_MAGIC (bpf/def/tables.h).
const givenMagic = 0x6376657468

// Station is a host behind an Ethernet session: what it sent went to the session's
// link.
type Station struct {
	Session uint64
	MAC     [6]byte
	Idle    time.Duration // since its last frame, within 0.2 s
}

// stationTick is the unit of what the table says of time (STATION_TIME_SHIFT in
// bpf/def/tables.h).
const stationTick = 1 << 27 * time.Nanosecond

// Stations are the hosts that sessions on links have now, in no order.
func (d *DataPlane) Stations() ([]Station, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.maps == nil {
		return nil, session.ErrClosed
	}
	keys, values, err := table.ReadAll[abi.StationKey, abi.Station](d.maps[abi.MapStation])
	if err != nil {
		return nil, err
	}
	now, err := table.Monotonic()
	if err != nil {
		return nil, err
	}
	var out []Station
	for i, s := range values {
		if s.Pdr == 0 || s.Pdr >= d.sessionTables.PDR.Len {
			continue
		}
		// This asks what packets ask (is_on_link in bpf/ethernet.h).
		head := d.sessionTables.PDR.Get(s.Pdr)
		if head.Action != 0 && head.Qfi&session.Frames != 0 && head.Source4 == keys[i].Link && head.Source6 == s.Session {
			idle := uint32(now/uint64(stationTick)) - s.Heard
			out = append(out, Station{Session: s.Session, MAC: keys[i].Mac, Idle: time.Duration(int32(idle)) * stationTick})
		}
	}
	return out, nil
}
