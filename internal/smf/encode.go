package smf

import (
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/smf/wire"
)

// identity is what differs between the messages of two sessions.
type identity struct {
	cpSEID uint64
	ue4    [4]byte
	ue6    [16]byte
	// access and core are peers; localAccess and localCore TEIDs of the UPF's
	// that the SMF chose.
	access, core           endpoint
	localAccess, localCore uint32
}

// Bits and codes of TS 29.244 that go-pfcp has no names for.
const (
	actionDrop, actionForw, actionBuff, actNOCP = 1, 2, 4, 8   // 8.2.26
	outerGTPU4, outerGTPU6                      = 0x100, 0x200 // 8.2.56
	removeGTPU4, removeGTPU                     = 0, 6         // 8.2.64
	reqDROBU, reqSNDEM                          = 1, 2         // 8.2.31
	typeN3, typeN9, typeN6                      = 11, 15, 17   // 8.2.118
	measureMBQE, measureMNOP                    = 1, 16        // 8.2.68
)

// chooseID is shared by the PDRs of the access side: they get the same F-TEID.
const chooseID = 5

// rules are the IDs of a session's rules. FARs and the first pair of PDRs are
// numbered in the order in which the dialect's SMF makes them.
type rules struct {
	up, down       uint16 // PDRs
	farUp, farDown uint32
	session, flow  uint32 // QERs; free5GC has two
	urrs           []uint32
	bar            uint8 // 0: none
	fromCP, toCP   uint16
	farCP          uint32
	filterPDR      uint16 // the first filter's downlink rule; +1: uplink, +2: the next
	filterQER      uint32
}

func rulesOf(d Dialect) rules {
	if d == Free5GC {
		return rules{up: 1, down: 2, farUp: 1, farDown: 2, session: 1, flow: 2, urrs: []uint32{1, 2}, fromCP: 3, toCP: 4, farCP: 3, filterPDR: 5, filterQER: 3}
	}
	return rules{down: 1, up: 2, farDown: 1, farUp: 2, session: 1, flow: 1, urrs: []uint32{1}, bar: 1, fromCP: 3, toCP: 4, farCP: 3, filterPDR: 5, filterQER: 2}
}

// encoder builds the messages of one session.
type encoder struct {
	spec    *Spec
	dialect Dialect
	node    string
	addr    netip.Addr // of our F-SEID
	id      identity
	rules
}

// message is a request about a session, without SEID and sequence number yet.
func (e *encoder) message(kind uint8, ies ...*ie.IE) ([]byte, error) {
	mp, priority := uint8(0), uint8(0)
	if e.dialect == Free5GC {
		mp = 1
		if kind == message.MsgTypeSessionModificationRequest {
			priority = 12 << 4 // it says 0 at establishment
		}
	}
	h := message.NewHeader(1, 0, mp, 1, kind, 0, 0, priority, nil)
	for _, i := range ies {
		if i == nil {
			continue
		}
		b, err := i.Marshal()
		if err != nil {
			return nil, err
		}
		h.Payload = append(h.Payload, b...)
	}
	h.SetLength()
	return h.Marshal()
}

// when returns i if has; else nil, which messages and grouped IEs leave out.
func when(has bool, i *ie.IE) *ie.IE {
	if !has {
		return nil
	}
	return i
}

// establish returns the IEs of a Session Establishment Request.
func (e *encoder) establish() []*ie.IE {
	s := e.spec
	ies := []*ie.IE{ie.NewNodeIDHeuristic(e.node), e.fseid()}
	up, down := e.createPDR(false, nil, 0), e.createPDR(true, nil, 0)
	if e.dialect == Free5GC {
		ies = append(ies, up, down)
	} else {
		ies = append(ies, down, up)
	}
	if s.CPFunction.IsValid() {
		// Open5GS' rules for router solicitations and advertisements.
		remove, source := e.removal(), ie.NewSourceInterface
		fteid := ie.NewFTEID(wire.FTEIDV4|wire.FTEIDV6|wire.FTEIDCH, 0, nil, nil, 0)
		if l := s.Local; l != nil && l.CoreTEID != 0 {
			fteid = e.fteid(e.id.localCore, false)
		}
		fromCP := ie.NewPDI(source(uint8(session.CPFunction)), fteid)
		toCP := ie.NewPDI(source(uint8(session.Access)), e.fteid(e.id.localAccess, true), e.instance(),
			ie.NewSDFFilter("permit out 58 from ff02::2/128 to assigned", "", "", "", 0), e.interfaceType(e.accessType()))
		ies = append(ies, ie.NewCreatePDR(ie.NewPDRID(e.fromCP), ie.NewPrecedence(255), fromCP, remove, ie.NewFARID(e.farDown)),
			ie.NewCreatePDR(ie.NewPDRID(e.toCP), ie.NewPrecedence(255), toCP, remove, ie.NewFARID(e.farCP)))
	}
	for i := range s.Filters {
		ies = append(ies, e.createPDR(true, &s.Filters[i], i), e.createPDR(false, &s.Filters[i], i))
	}
	ies = append(ies, e.createFARs()...)
	for _, id := range e.allURRs() {
		ies = append(ies, ie.NewCreateURR(e.urr(id, s.URR)...))
	}
	return append(append(ies, e.createQERs()...),
		when(e.bar != 0, ie.NewCreateBAR(ie.NewBARID(e.bar))),
		ie.NewPDNType(uint8(slices.Index(pdnTypes, s.PDNType)+1)),
		when(s.DNN != "", ie.NewAPNDNN(s.DNN)),
		when(s.SNSSAI.SST != 0, ie.NewSNSSAI(s.SNSSAI.SST, e.sd())))
}

// sd is the slice differentiator as the SMF sends it. That of Open5GS sends its octets in
// reverse order.
func (e *encoder) sd() uint32 {
	sd, err := strconv.ParseUint(e.spec.SNSSAI.SD, 16, 24)
	if err != nil {
		return 0xffffff // none (TS 23.003 section 28.4.2)
	}
	if e.dialect == Open5GS {
		return bits.ReverseBytes32(uint32(sd)) >> 8
	}
	return uint32(sd)
}

func (e *encoder) fseid() *ie.IE {
	if e.addr.Is4() {
		return ie.NewFSEID(e.id.cpSEID, e.addr.AsSlice(), nil)
	}
	return ie.NewFSEID(e.id.cpSEID, nil, e.addr.AsSlice())
}

// instance returns the network instance, or nil if the session names none.
func (e *encoder) instance() *ie.IE {
	switch name := e.spec.NetworkInstance; {
	case name == "":
		return nil
	case e.dialect == Open5GS:
		return ie.NewNetworkInstanceFQDN(name)
	default:
		return ie.NewNetworkInstance(name)
	}
}

// interfaceType returns a 3GPP Interface Type; nil: the dialect has none.
func (e *encoder) interfaceType(t uint8) *ie.IE {
	return when(e.dialect == Open5GS, ie.NewTGPPInterfaceType(t))
}

func (e *encoder) accessType() uint8 {
	if e.spec.Access != nil && e.spec.Access.Interface == "n9" {
		return typeN9
	}
	return typeN3
}

func (e *encoder) coreType() uint8 {
	if e.spec.Role == Intermediate {
		return typeN9
	}
	return typeN6
}

// farPair are the FARs of downlink and of uplink packets.
type farPair struct{ down, up uint32 }

// fars are those of the session (f is nil), or of the i-th filter. Open5GS' SMF makes a pair for each QoS flow.
func (e *encoder) fars(f *Filter, i int) farPair {
	if f == nil || f.QFI == 0 || e.dialect != Open5GS {
		return farPair{e.farDown, e.farUp}
	}
	first := e.farCP + 1 + uint32(2*i)
	return farPair{first, first + 1}
}

// allFARs are the pairs of the session and of its filters.
func (e *encoder) allFARs() []farPair {
	list := []farPair{e.fars(nil, 0)}
	for i := range e.spec.Filters {
		if p := e.fars(&e.spec.Filters[i], i); p != list[0] {
			list = append(list, p)
		}
	}
	return list
}

// createPDR is the rule of one direction: that of the session (f is nil), or
// the i-th filter's.
func (e *encoder) createPDR(down bool, f *Filter, i int) *ie.IE {
	fars := e.fars(f, i)
	id, far, precedence := e.up, fars.up, uint32(65535)
	if e.dialect == Free5GC {
		precedence = 255
	}
	if down {
		id, far = e.down, fars.down
	}
	qers := e.usedQERs()
	if f != nil {
		id, precedence = e.filterPDR+uint16(2*i), f.Precedence
		if !down {
			id++
		}
		if q := e.filterQERID(i); q != 0 && e.dialect == Open5GS {
			qers = []uint32{q} // not the session's AMBR
		} else if q != 0 {
			qers = append(slices.Clone(qers), q)
		}
	}
	ies := []*ie.IE{ie.NewPDRID(id), ie.NewPrecedence(precedence), ie.NewPDI(e.pdi(down, f)...),
		when(!down || e.spec.Role == Intermediate, e.removal()), ie.NewFARID(far)}
	for _, u := range e.countedBy(down, f, i) {
		ies = append(ies, ie.NewURRID(u))
	}
	for _, q := range qers {
		ies = append(ies, ie.NewQERID(q))
	}
	return ie.NewCreatePDR(ies...)
}

// removal is the Outer Header Removal of packets in GTP-U.
func (e *encoder) removal() *ie.IE {
	if e.dialect == Free5GC && e.spec.Local.Address.Is4() || e.spec.RemoveIPv4 {
		return ie.New(ie.OuterHeaderRemoval, []byte{removeGTPU4})
	}
	return ie.New(ie.OuterHeaderRemoval, []byte{removeGTPU})
}

func (e *encoder) pdi(down bool, f *Filter) []*ie.IE {
	source, interfaceType, fteid := uint8(session.Access), e.accessType(), e.fteid(e.id.localAccess, true)
	if down {
		source, interfaceType, fteid = uint8(session.Core), e.coreType(), nil
		if e.spec.Role == Intermediate {
			fteid = e.fteid(e.id.localCore, false)
		}
	}
	flow, qfi := "", e.spec.QFI
	if f != nil {
		flow, qfi = f.Flow, f.QFI
	}
	return append([]*ie.IE{
		ie.NewSourceInterface(source), fteid, e.instance(),
		when(down && f == nil || e.dialect == Free5GC, e.ueAddress(down)),
		when(f != nil, ie.NewSDFFilter(flow, "", "", "", 0)),
		when(e.dialect == Open5GS && !down && qfi != 0, ie.NewQFI(qfi)),
		e.interfaceType(interfaceType),
	}, e.framedRoutes(down)...)
}

// framedRoutes are in the PDI that has the UE's address.
func (e *encoder) framedRoutes(down bool) (out []*ie.IE) {
	for _, p := range e.spec.FramedRoutes {
		switch {
		case !down && e.dialect != Free5GC:
		case p.Addr().Is4():
			out = append(out, ie.NewFramedRoute(p.String()))
		default:
			out = append(out, ie.NewFramedIPv6Route(p.String()))
		}
	}
	return out
}

// fteid is the UPF's: chosen by it, or given.
func (e *encoder) fteid(teid uint32, access bool) *ie.IE {
	l := e.spec.Local
	switch {
	case l == nil && access:
		return ie.NewFTEID(wire.FTEIDV4|wire.FTEIDV6|wire.FTEIDCH|wire.FTEIDCHID, 0, nil, nil, chooseID)
	case l == nil:
		return ie.NewFTEID(wire.FTEIDV4|wire.FTEIDV6|wire.FTEIDCH, 0, nil, nil, 0)
	case l.Address.Is4():
		return ie.NewFTEID(wire.FTEIDV4, teid, l.Address.AsSlice(), nil, 0)
	}
	return ie.NewFTEID(wire.FTEIDV6, teid, nil, l.Address.AsSlice(), 0)
}

// ueAddress is nil where the sessions have none: a tunnel's other end.
func (e *encoder) ueAddress(down bool) *ie.IE {
	s := e.spec
	if !s.has4() && !s.has6() {
		return nil
	}
	flags, v4, v6 := uint8(0), "", ""
	has4, has6 := uint8(wire.UEV4), uint8(wire.UEV6)
	if s.ChooseUE != "" {
		has4, has6 = wire.UECHV4, wire.UECHV6
	}
	if down {
		flags |= wire.UESD
	}
	if s.has4() {
		flags, v4 = flags|has4, netip.AddrFrom4(e.id.ue4).String()
	}
	if s.has6() {
		flags, v6 = flags|has6, netip.AddrFrom16(e.id.ue6).String()
	}
	return ie.NewUEIPAddress(flags, v4, v6, 0, 0)
}

// createFARs are the first ones: downlink packets have nowhere to go yet.
func (e *encoder) createFARs() []*ie.IE {
	up := func(id uint32) *ie.IE {
		return ie.NewCreateFAR(append([]*ie.IE{ie.NewFARID(id)}, e.toCore(ie.NewForwardingParameters)...)...)
	}
	if e.dialect == Free5GC {
		return []*ie.IE{up(e.farUp), ie.NewCreateFAR(ie.NewFARID(e.farDown), ie.NewApplyAction(actionForw),
			ie.NewForwardingParameters(ie.NewDestinationInterface(uint8(session.Access))))}
	}
	var fars []*ie.IE
	for _, p := range e.allFARs() {
		fars = append(fars, ie.NewCreateFAR(ie.NewFARID(p.down), e.action(actionBuff|actNOCP), ie.NewBARID(e.bar)), up(p.up))
	}
	if cp := e.spec.CPFunction; cp.IsValid() {
		fars = append(fars, ie.NewCreateFAR(ie.NewFARID(e.farCP), e.action(actionForw), ie.NewForwardingParameters(
			ie.NewDestinationInterface(uint8(session.CPFunction)), outer(endpoint{cp, uint32(e.id.cpSEID)}))))
	}
	return fars
}

// action is one octet in Release 15, and two since Release 16.
func (e *encoder) action(bits uint8) *ie.IE {
	if e.dialect == Free5GC {
		return ie.NewApplyAction(bits)
	}
	return ie.NewApplyAction(bits, 0)
}

// toCore is what uplink packets are done with: an intermediate UPF that does
// not know the next one yet drops them.
func (e *encoder) toCore(parameters func(...*ie.IE) *ie.IE) []*ie.IE {
	if e.spec.Role == Intermediate && !e.id.core.addr.IsValid() {
		return []*ie.IE{e.action(actionDrop)}
	}
	parts := []*ie.IE{ie.NewDestinationInterface(uint8(session.Core)), e.instance(), nil, e.interfaceType(e.coreType())}
	if e.spec.Role == Intermediate {
		parts[2] = outer(e.id.core)
	}
	return []*ie.IE{e.action(actionForw), parameters(parts...)}
}

// toAccess are the forwarding parameters of downlink packets.
func (e *encoder) toAccess(endMarker bool) *ie.IE {
	flags := uint8(0)
	if endMarker {
		flags = reqSNDEM
	}
	return ie.NewUpdateForwardingParameters(ie.NewDestinationInterface(uint8(session.Access)), e.instance(), outer(e.id.access),
		e.interfaceType(e.accessType()),
		when(endMarker || e.dialect == Free5GC, ie.NewPFCPSMReqFlags(flags))) // free5GC sends this IE even without a flag
}

func outer(p endpoint) *ie.IE {
	if p.addr.Is4() {
		return ie.NewOuterHeaderCreation(outerGTPU4, p.teid, p.addr.String(), "", 0, 0, 0)
	}
	return ie.NewOuterHeaderCreation(outerGTPU6, p.teid, "", p.addr.String(), 0, 0, 0)
}

func (e *encoder) usedURRs() []uint32 {
	if e.spec.URR == nil {
		return nil
	}
	return e.urrs
}

// filterURR is the URR of a filter's own; 0: it has none.
func (e *encoder) filterURR(i int) uint32 {
	if u := e.spec.URR; u == nil || !u.AsCore || e.dialect != Open5GS {
		return 0
	}
	return uint32(len(e.urrs)+1) + uint32(i)
}

// allURRs are those of the session and of its filters.
func (e *encoder) allURRs() []uint32 {
	list := slices.Clone(e.usedURRs())
	for i := range e.spec.Filters {
		if id := e.filterURR(i); id != 0 {
			list = append(list, id)
		}
	}
	return list
}

// countedBy are the URRs of a PDR.
func (e *encoder) countedBy(down bool, f *Filter, i int) []uint32 {
	switch u := e.spec.URR; {
	case u == nil || !u.AsCore || e.dialect != Open5GS:
		return e.usedURRs()
	case !down:
		return nil
	case f != nil:
		return []uint32{e.filterURR(i)}
	}
	return e.urrs
}

// usedQERs are those of the whole session.
func (e *encoder) usedQERs() []uint32 {
	if e.spec.MBR == nil && e.spec.QFI == 0 {
		return nil
	}
	if e.flow == e.session {
		return []uint32{e.session}
	}
	return []uint32{e.flow, e.session}
}

func (e *encoder) createQERs() []*ie.IE {
	var qers []*ie.IE
	for _, id := range e.usedQERs() {
		var mbr *session.BitRate
		if id == e.session {
			mbr = e.spec.MBR
		}
		qers = append(qers, ie.NewCreateQER(qer(id, mbr, nil, e.spec.QFI, false)...))
	}
	for i, f := range e.spec.Filters {
		if id := e.filterQERID(i); id != 0 {
			qers = append(qers, ie.NewCreateQER(qer(id, f.MBR, f.GBR, f.QFI, f.Closed)...))
		}
	}
	return qers
}

// filterQERID is 0 where a filter has no QER of its own.
func (e *encoder) filterQERID(i int) uint32 {
	if f := e.spec.Filters[i]; f.MBR == nil && f.QFI == 0 && !f.Closed {
		return 0
	}
	return e.filterQER + uint32(i)
}

func qer(id uint32, mbr, gbr *session.BitRate, qfi uint8, closed bool) []*ie.IE {
	rate, guaranteed := session.BitRate{}, session.BitRate{}
	if mbr != nil {
		rate = *mbr
	}
	if gbr != nil {
		guaranteed = *gbr
	}
	return []*ie.IE{
		ie.NewQERID(id), ie.NewGateStatus(gate(closed), gate(closed)),
		when(mbr != nil, ie.NewMBR(rate.Uplink, rate.Downlink)),
		when(gbr != nil, ie.NewGBR(guaranteed.Uplink, guaranteed.Downlink)),
		when(qfi != 0, ie.NewQFI(qfi)),
	}
}

func gate(closed bool) uint8 {
	if closed {
		return ie.GateStatusClosed
	}
	return ie.GateStatusOpen
}

// urr is the content of Create URR, or of Update URR.
func (e *encoder) urr(id uint32, u *URR) []*ie.IE {
	flag := map[bool]int{true: 1}
	before := u.BeforeQoS || u.AsCore && e.dialect == Free5GC && id == e.urrs[0]
	information := uint8(measureMNOP*flag[u.Packets] | measureMBQE*flag[before])
	on := map[bool]uint32{true: 1}
	bits := on[u.Period != 0]*session.TriggerPeriodic |
		on[u.VolumeThreshold != nil]*session.TriggerVolumeThreshold | on[u.VolumeQuota != nil]*session.TriggerVolumeQuota |
		on[u.TimeThreshold != 0]*session.TriggerTimeThreshold | on[u.TimeQuota != 0]*session.TriggerTimeQuota |
		on[u.QuotaHolding != 0]*session.TriggerQuotaHolding |
		on[u.Start]*session.TriggerStart | on[u.Stop]*session.TriggerStop | on[u.Hosts]*session.TriggerMACAddresses
	triggers := []uint8{uint8(bits), uint8(bits >> 8), uint8(bits >> 16)}
	if e.dialect == Free5GC {
		triggers = triggers[:2] // Release 15
	}
	return []*ie.IE{
		ie.NewURRID(id),
		ie.NewMeasurementMethod(flag[u.Hosts], 1, flag[u.TimeThreshold != 0 || u.TimeQuota != 0]),
		ie.NewReportingTriggers(triggers...),
		when(u.Period != 0, ie.NewMeasurementPeriod(time.Duration(u.Period))),
		when(u.VolumeThreshold != nil, ie.NewVolumeThreshold(volume(u.VolumeThreshold))),
		when(u.VolumeQuota != nil, ie.NewVolumeQuota(volume(u.VolumeQuota))),
		when(u.TimeThreshold != 0, ie.NewTimeThreshold(time.Duration(u.TimeThreshold))),
		when(u.TimeQuota != 0, ie.NewTimeQuota(time.Duration(u.TimeQuota))),
		when(u.QuotaHolding != 0, ie.NewQuotaHoldingTime(time.Duration(u.QuotaHolding))),
		when(information != 0, ie.NewMeasurementInformation(information)),
	}
}

// volume returns flags and octets of a Volume Threshold or Quota; v may be nil.
func volume(v *session.Volume) (flags uint8, total, up, down uint64) {
	if v == nil {
		return 0, 0, 0, 0
	}
	for i, octets := range []*uint64{v.Total, v.Uplink, v.Downlink} {
		if octets != nil {
			flags |= 1 << i
			*[]*uint64{&total, &up, &down}[i] = *octets
		}
	}
	return flags, total, up, down
}
