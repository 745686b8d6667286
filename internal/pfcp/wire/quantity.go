package wire

import (
	"time"

	"github.com/culvert-net/culvert/internal/session"
)

// Volume reads a Volume Threshold or Volume Quota.
func (i IE) Volume() *session.Volume {
	var out session.Volume
	c := cursor{i: i}
	flags := c.u8()
	for n, dst := range []**uint64{&out.Total, &out.Uplink, &out.Downlink} {
		if flags>>n&1 != 0 {
			*dst = new(c.u64())
		}
	}
	if flags&7 == 0 {
		i.Incorrect()
	}
	return &out
}

// BitRate reads an MBR or GBR.
func (i IE) BitRate() *session.BitRate {
	if !i.Need(10) {
		return nil
	}
	c := cursor{i: i}
	return &session.BitRate{Uplink: c.u40(), Downlink: c.u40()}
}

// PacketRate reads a Packet Rate: each direction is optional, the time unit is
// a number.
func (i IE) PacketRate() *session.PacketRates {
	units := [...]time.Duration{time.Minute, 6 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}
	var out session.PacketRates
	c := cursor{i: i}
	flags := c.u8()
	for n, dst := range []*session.PacketRate{&out.Uplink, &out.Downlink} {
		if flags>>n&1 == 0 {
			continue
		}
		unit := c.u8() & 7
		if int(unit) >= len(units) {
			unit = 0 // "shall be interpreted as one minute"
		}
		*dst = session.PacketRate{Packets: c.u16(), Per: units[unit]}
	}
	if flags&0x04 != 0 { // APRC: additional packet rates, for exception data of the IoT
		i.Unsupported()
	}
	return &out
}
