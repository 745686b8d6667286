package wire

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// NewFTEID makes the F-TEID of a PDI.
func NewFTEID(pdi *session.PDI) *ie.IE {
	var flags uint8
	if pdi.TEID4.IsValid() {
		flags |= 1
	}
	if pdi.TEID6.IsValid() {
		flags |= 2
	}
	return ie.NewFTEID(flags, pdi.TEID, pdi.TEID4.AsSlice(), pdi.TEID6.AsSlice(), 0)
}

// NewUEAddress makes a UE IP Address: an IPv4 address, an IPv6 /64, or both in this
// order.
func NewUEAddress(ues []netip.Prefix) *ie.IE {
	b := []byte{0}
	for _, ue := range ues {
		if ue.Addr().Is4() {
			b[0] |= 2
		} else {
			b[0] |= 1
		}
		b = append(b, ue.Addr().AsSlice()...)
	}
	return ie.New(ie.UEIPAddress, b)
}

// NewUsageReports makes Usage Reports; ieType says for which message.
func NewUsageReports(ieType uint16, reports []session.UsageReport, queryRef *uint32) []*ie.IE {
	var list []*ie.IE
	for i := range reports {
		list = append(list, NewUsageReport(ieType, &reports[i], queryRef))
	}
	return list
}

// NewUsageReport makes a Usage Report; queryRef, if not nil, answers a Query URR
// Reference.
func NewUsageReport(ieType uint16, r *session.UsageReport, queryRef *uint32) *ie.IE {
	trigger := uint32(r.Cause)
	parts := []*ie.IE{
		ie.NewURRID(r.URR),
		ie.NewURSEQN(r.Sequence),
		ie.NewUsageReportTrigger(uint8(trigger), uint8(trigger>>8), uint8(trigger>>16)),
	}
	stamp := func(ieType uint16, t time.Time) {
		if !t.IsZero() { // whole seconds, modulo 2^32: a new era begins in 2036
			parts = append(parts, ie.NewUint32IE(ieType, uint32(t.Unix()+Epoch)))
		}
	}
	stamp(ie.StartTime, r.Start)
	stamp(ie.EndTime, r.End)
	if r.HasVolume {
		parts = append(parts, volumeMeasurement(r))
	}
	if r.HasDuration {
		parts = append(parts, ie.NewDurationMeasurement(r.Duration))
	}
	stamp(ie.TimeOfFirstPacket, r.First)
	stamp(ie.TimeOfLastPacket, r.Last)
	if r.Cause&session.CauseMonitoringTime != 0 || r.BeforeMonitoring || r.AfterMonitoring {
		info := uint8(1) // BEF
		if r.AfterMonitoring {
			info = 2 // AFT
		}
		parts = append(parts, ie.New(ie.UsageInformation, []byte{info}))
	}
	if len(r.Detected)+len(r.Removed) > 0 {
		parts = append(parts, ie.NewEthernetTrafficInformation(append(
			macAddresses(ie.MACAddressesDetected, r.Detected), macAddresses(ie.MACAddressesRemoved, r.Removed)...)...))
	}
	if queryRef != nil && r.Cause&session.CauseImmediate != 0 {
		parts = append(parts, ie.NewQueryURRReference(*queryRef))
	}
	return ie.NewUsageReport(ieType, parts...)
}

// macAddresses makes as many MAC Addresses Detected or Removed as are needed, for
// hosts without tags.
func macAddresses(ieType uint16, list [][6]byte) (out []*ie.IE) {
	for some := range slices.Chunk(list, math.MaxUint8) {
		b := []byte{byte(len(some))}
		for _, mac := range some {
			b = append(b, mac[:]...)
		}
		out = append(out, ie.New(ieType, append(b, 0, 0))) // lengths of C-TAG and S-TAG
	}
	return out
}

// volumeMeasurement makes a Volume Measurement: octets, and packets if the URR
// counts them.
func volumeMeasurement(r *session.UsageReport) *ie.IE {
	b := []byte{0x07}
	for _, v := range [...]uint64{r.Volume.Total(), r.Volume.Uplink, r.Volume.Downlink} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	if r.HasPackets {
		b[0] |= 0x38
		for _, v := range [...]uint64{r.Packets.Total(), r.Packets.Uplink, r.Packets.Downlink} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	return ie.New(ie.VolumeMeasurement, b)
}

// NewUPFunctionFeatures makes UP Function Features (TS 29.244 section 8.2.25).
// What it does not announce is refused.
func NewUPFunctionFeatures(f session.Features) *ie.IE {
	var b [4]byte
	for _, feature := range []struct {
		on    bool
		octet int // of the value
		bit   int // 1 is the lowest
	}{
		{f.NotificationDelay, 0, 2}, // DDND
		{true, 0, 5},                // FTUP
		{true, 0, 6},                // PFDM
		{f.EndMarkers, 1, 1},        // EMPU
		{f.QuotaAction, 1, 4},       // QUOAC
		{f.FramedRouting, 1, 6},     // FRRT
		{f.UEAddresses, 2, 3},       // UEIP
		{f.NumberOfPackets, 2, 5},   // MNOP
		{f.QuotaValidity, 3, 3},     // VTIME
		{f.PrefixLength, 3, 6},      // IP6PL
	} {
		if feature.on {
			b[feature.octet] |= 1 << (feature.bit - 1)
		}
	}
	return ie.NewUPFunctionFeatures(b[:]...)
}

// NewNodeID makes a Node ID of an address or a name.
func NewNodeID(id string) *ie.IE { return ie.NewNodeIDHeuristic(id) }

// NewRemotePeer makes a Remote GTP-U Peer.
func NewRemotePeer(a netip.Addr) *ie.IE {
	if a.Is4() {
		return ie.NewRemoteGTPUPeer(2, a.String(), "", 0, "")
	}
	return ie.NewRemoteGTPUPeer(1, "", a.String(), 0, "")
}
