package smf

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Report is what the UPF says without being asked.
type Report struct {
	Kind ReportKind `json:"report"`
	// Group and Session (from 0) that it is about; empty and -1 if it is about
	// none that we know.
	Group   string `json:"group,omitempty"`
	Session int    `json:"session"`
	SEID    uint64 `json:"cp_seid,string,omitempty"`
	// DownlinkData: PDRs that packets for an idle UE came by.
	DownlinkData []uint16 `json:"downlink_data_pdrs,omitempty"`
	Usage        []Usage  `json:"usage,omitempty"`
	// ErrorIndications came for these F-TEIDs.
	ErrorIndications []Created `json:"error_indications,omitempty"`
	// Peers whose GTP-U path failed, or is back.
	Failed    []netip.Addr `json:"path_failed,omitempty"`
	Recovered []netip.Addr `json:"path_recovered,omitempty"`
	// Problem: what could not be read.
	Problem string    `json:"problem,omitempty"`
	Time    time.Time `json:"time"`
}

// ReportKind says what a report is.
type ReportKind string

// The kinds of reports.
const (
	ReportSession   ReportKind = "session"   // Session Report Request
	ReportNode      ReportKind = "node"      // Node Report Request
	ReportReleased  ReportKind = "released"  // the UPF ended the association
	ReportRestarted ReportKind = "restarted" // another Recovery Time Stamp
	ReportPathLost  ReportKind = "path_lost" // a heartbeat was not answered
)

// Usage is a usage report.
type Usage struct {
	URR      uint32   `json:"urr"`
	Sequence uint32   `json:"sequence"` // UR-SEQN
	Triggers []string `json:"triggers"`
	// Octets and packets; nil: not said.
	Total           *uint64    `json:"total_octets,omitempty"`
	Uplink          *uint64    `json:"uplink_octets,omitempty"`
	Downlink        *uint64    `json:"downlink_octets,omitempty"`
	TotalPackets    *uint64    `json:"total_packets,omitempty"`
	UplinkPackets   *uint64    `json:"uplink_packets,omitempty"`
	DownlinkPackets *uint64    `json:"downlink_packets,omitempty"`
	Duration        *Duration  `json:"duration,omitempty"`
	Start           *time.Time `json:"start,omitempty"`
	End             *time.Time `json:"end,omitempty"`
	First           *time.Time `json:"first_packet,omitempty"`
	Last            *time.Time `json:"last_packet,omitempty"`
	// MAC addresses of hosts that came and went.
	Detected []string `json:"detected,omitempty"`
	Removed  []string `json:"removed,omitempty"`
}

// Created is an F-TEID.
type Created struct {
	TEID  uint32     `json:"teid,omitempty"`
	Addr4 netip.Addr `json:"ipv4,omitzero"`
	Addr6 netip.Addr `json:"ipv6,omitzero"`
}

// Reports is where the UPF's reports arrive. One that cannot be put there is
// not answered, so that it comes again.
func (c *Client) Reports() <-chan Report { return c.reports }

// deliver hands a report out; false: there is no room.
func (c *Client) deliver(r Report) bool {
	r.Time = time.Now()
	if r.Group == "" {
		r.Session = -1
	}
	select {
	case c.reports <- r:
		return true
	default:
		return false
	}
}

// serve answers a request of the UPF's.
func (c *Client) serve(b []byte, from netip.AddrPort) {
	h, ok := wire.ParseHeader(b)
	if !ok {
		return
	}
	accepted := ie.NewCause(ie.CauseRequestAccepted)
	node := ie.NewNodeIDHeuristic(c.options.NodeID)
	stamp := ie.NewRecoveryTimeStamp(c.stamp())
	var out message.Message
	switch h.Kind {
	case message.MsgTypeHeartbeatRequest:
		c.sawStart(h.Payload)
		out = message.NewHeartbeatResponse(h.Sequence, stamp)
	case message.MsgTypeAssociationSetupRequest:
		out = message.NewAssociationSetupResponse(h.Sequence, node, accepted, stamp, ie.NewCPFunctionFeatures(0))
	case message.MsgTypeAssociationUpdateRequest:
		out = message.NewAssociationUpdateResponse(h.Sequence, node, accepted, ie.NewCPFunctionFeatures(0))
	case message.MsgTypeAssociationReleaseRequest:
		c.once(h, Report{Kind: ReportReleased})
		out = message.NewAssociationReleaseResponse(h.Sequence, node, accepted)
	case message.MsgTypeNodeReportRequest:
		if p := c.replaying(); !c.once(h, nodeReport(h.Payload)) || p != nil && !p.AnswersNodeReports() {
			return
		}
		out = message.NewNodeReportResponse(h.Sequence, node, accepted, nil)
	case message.MsgTypeSessionReportRequest:
		if answer, known := c.replayedReport(h); known {
			c.answer(answer, from)
			return
		}
		out = c.sessionReport(h)
	}
	if out == nil {
		return
	}
	if answer, err := marshal(out); err == nil {
		c.answer(answer, from)
	}
}

// answer sends an answer; nil: none. One that is lost or not sent the UPF asks for
// again.
func (c *Client) answer(b []byte, to netip.AddrPort) {
	if b != nil {
		_, _ = c.conn.WriteToUDPAddrPort(b, to)
	}
}

// remembered is how many of the UPF's requests are known: one that comes again is
// answered again, and not reported again.
const remembered = 4096

// once delivers the report of a request that is new; false: there is no room. Only
// the goroutine that reads calls it.
func (c *Client) once(h wire.Header, r Report) bool {
	key := uint64(h.Kind)<<32 | uint64(h.Sequence)
	if slices.Contains(c.seen, key) {
		return true
	}
	if !c.deliver(r) {
		return false
	}
	if len(c.seen) == remembered {
		c.seen = c.seen[1:]
	}
	c.seen = append(c.seen, key)
	return true
}

// sessionReport reads a Session Report Request and makes its answer; nil: none.
func (c *Client) sessionReport(h wire.Header) message.Message {
	r := readReport(h)
	c.mu.Lock()
	g, i := c.find(h.SEID)
	cause, seid := ie.CauseSessionContextNotFound, uint64(0)
	if g != nil && g.state[i].live {
		cause, seid = ie.CauseRequestAccepted, g.state[i].upSEID
		r.Group, r.Session = g.spec.Name, i
		if len(r.DownlinkData) > 0 {
			g.state[i].reported = true
			g.woken = append(g.woken, i)
			c.answered.Broadcast()
		}
	}
	c.mu.Unlock()
	if !c.once(h, r) {
		return nil
	}
	return message.NewSessionReportResponse(0, 0, seid, h.Sequence, 0, ie.NewCause(cause))
}

// readReport reads a Session Report Request.
func readReport(h wire.Header) Report {
	r := Report{Kind: ReportSession, SEID: h.SEID}
	ies, err := parse(h.Payload)
	if err != nil {
		r.Problem = err.Error()
	}
	for _, i := range ies {
		r.add(i)
	}
	return r
}

// add reads one IE of a Session Report Request.
func (r *Report) add(i *ie.IE) {
	switch i.Type {
	case ie.DownlinkDataReport:
		for _, child := range i.ChildIEs {
			if id, err := child.PDRID(); err == nil && child.Type == ie.PDRID {
				r.DownlinkData = append(r.DownlinkData, id)
			}
		}
		if len(r.DownlinkData) == 0 {
			r.Problem = "a Downlink Data Report without a PDR ID"
		}
	case ie.UsageReportWithinSessionReportRequest:
		r.Usage = append(r.Usage, readUsage(i))
	case ie.ErrorIndicationReport:
		for _, child := range i.ChildIEs {
			if child.Type != ie.FTEID {
				continue
			}
			var created Created
			if f, err := child.FTEID(); err == nil {
				v4, _ := netip.AddrFromSlice(f.IPv4Address)
				v6, _ := netip.AddrFromSlice(f.IPv6Address)
				created = Created{TEID: f.TEID, Addr4: v4.Unmap(), Addr6: v6}
			}
			r.ErrorIndications = append(r.ErrorIndications, created)
		}
	}
}

func nodeReport(payload []byte) Report {
	r := Report{Kind: ReportNode}
	ies, err := parse(payload)
	if err != nil {
		r.Problem = err.Error()
	}
	for _, i := range ies {
		switch i.Type {
		case ie.UserPlanePathFailureReport:
			r.Failed = append(r.Failed, peers(i)...)
		case ie.UserPlanePathRecoveryReport:
			r.Recovered = append(r.Recovered, peers(i)...)
		}
	}
	return r
}

func peers(i *ie.IE) (found []netip.Addr) {
	for _, child := range i.ChildIEs {
		if child.Type != ie.RemoteGTPUPeer {
			continue
		}
		if p, err := child.RemoteGTPUPeer(); err == nil {
			for _, ip := range [][]byte{p.IPv4Address, p.IPv6Address} {
				if a, ok := netip.AddrFromSlice(ip); ok {
					found = append(found, a.Unmap())
				}
			}
		}
	}
	return found
}

// usages are the usage reports among the IEs of an answer.
func usages(payload []byte) ([]Usage, error) {
	ies, err := parse(payload)
	if err != nil {
		return nil, err
	}
	var list []Usage
	for _, i := range ies {
		if i.Type == ie.UsageReportWithinSessionModificationResponse || i.Type == ie.UsageReportWithinSessionDeletionResponse {
			list = append(list, readUsage(i))
		}
	}
	return list, nil
}

// readUsage reads a usage report; what cannot be read is left out.
func readUsage(i *ie.IE) Usage {
	u := Usage{Triggers: []string{}}
	for _, child := range i.ChildIEs {
		switch child.Type {
		case ie.URRID:
			u.URR, _ = child.URRID()
		case ie.URSEQN:
			u.Sequence, _ = child.URSEQN()
		case ie.UsageReportTrigger:
			u.Triggers = append(u.Triggers, wire.Names(child.Payload, wire.UsageTriggers)...)
		case ie.VolumeMeasurement:
			u.readVolume(child)
		case ie.DurationMeasurement:
			if d, err := child.DurationMeasurement(); err == nil {
				u.Duration = new(Duration(d))
			}
		case ie.StartTime:
			u.Start = readTime(child.StartTime())
		case ie.EndTime:
			u.End = readTime(child.EndTime())
		case ie.TimeOfFirstPacket:
			u.First = readTime(child.TimeOfFirstPacket())
		case ie.TimeOfLastPacket:
			u.Last = readTime(child.TimeOfLastPacket())
		case ie.EthernetTrafficInformation:
			for _, hosts := range child.ChildIEs {
				switch hosts.Type {
				case ie.MACAddressesDetected:
					u.Detected = append(u.Detected, macAddresses(hosts.Payload)...)
				case ie.MACAddressesRemoved:
					u.Removed = append(u.Removed, macAddresses(hosts.Payload)...)
				}
			}
		}
	}
	return u
}

// macAddresses are those of an IE, whose first octet is their number. (go-pfcp
// reads one too many.)
func macAddresses(b []byte) (out []string) {
	if len(b) == 0 || len(b) < 1+6*int(b[0]) {
		return nil
	}
	for mac := range slices.Chunk(b[1:1+6*int(b[0])], 6) {
		out = append(out, net.HardwareAddr(mac).String())
	}
	return out
}

func readTime(t time.Time, err error) *time.Time {
	if err != nil {
		return nil
	}
	return new(t.UTC())
}

func (u *Usage) readVolume(i *ie.IE) {
	v, err := i.VolumeMeasurement()
	if err != nil {
		return
	}
	for _, f := range []struct {
		has   bool
		value uint64
		to    **uint64
	}{
		{v.HasTOVOL(), v.TotalVolume, &u.Total},
		{v.HasULVOL(), v.UplinkVolume, &u.Uplink},
		{v.HasDLVOL(), v.DownlinkVolume, &u.Downlink},
		{v.HasTONOP(), v.TotalNumberOfPackets, &u.TotalPackets},
		{v.HasULNOP(), v.UplinkNumberOfPackets, &u.UplinkPackets},
		{v.HasDLNOP(), v.DownlinkNumberOfPackets, &u.DownlinkPackets},
	} {
		if f.has {
			*f.to = &f.value
		}
	}
}
