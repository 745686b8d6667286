package pfcp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// builder makes a session out of what a request says: a new one, or what an old
// one becomes. Nothing is done before all of it is read.
type builder struct {
	wire.Decoder
	features Features
	// apps are the filters of applications that PFDs describe.
	apps func(id string) ([]session.Filter, bool)

	to    *session.Session
	owned [5]bool // by RuleKind: lists that are not shared with another session
	how   Modification
	wants []want
	// queryRef of a modification goes back in the reports that it asks for.
	queryRef *uint32
	prefer6  bool // the SMF speaks IPv6
}

// want is what a PDR leaves to us.
type want struct {
	pdr              uint16
	created          bool // by Create PDR, else by Update PDR
	fteid            wire.FTEID
	choose4, choose6 bool
	// What there is to tell about it.
	tellTEID bool
	tellUE   []netip.Prefix
}

// update says that a rule is there already: what is not named stays, and what
// is named with nothing in it goes (TS 29.244 section 5.6.3).
type update bool

const (
	create  update = false
	changes update = true
)

// clears says whether an IE takes away what the rule had.
func (u update) clears(v []byte) bool { return u == changes && len(v) == 0 }

// Errors that only the log shows.
var (
	errExists  = errors.New("a rule with that ID is there already")
	errUnknown = errors.New("there is no such rule")
)

// place finds a rule in a sorted list, or where it belongs. Rules are large:
// they are looked at in their place.
func place[R any, K cmp.Ordered](list []R, id K, idOf func(*R) K) (at int, found bool) {
	low, high := 0, len(list)
	for low < high {
		if middle := (low + high) / 2; idOf(&list[middle]) < id {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(list) && idOf(&list[low]) == id
}

func pdrID(r *session.PDR) uint16 { return r.ID }
func farID(r *session.FAR) uint32 { return r.ID }
func qerID(r *session.QER) uint32 { return r.ID }
func urrID(r *session.URR) uint32 { return r.ID }
func barID(r *session.BAR) uint8  { return r.ID }

// rule finds the rule that an IE is about in a list that is ours to change. For
// a new one it makes room.
func rule[R any, K ~uint8 | ~uint16 | ~uint32](d *wire.Decoder, list *[]R, id K, u update, kind RuleKind, idOf func(*R) K) *R {
	if d.Err != nil {
		return nil
	}
	at, found := place(*list, id, idOf)
	switch {
	case found && u == create:
		d.Fail(wire.FailedRule(kind, uint32(id), errExists))
		return nil
	case !found && u == changes:
		d.Fail(wire.FailedRule(kind, uint32(id), errUnknown))
		return nil
	case !found:
		var empty R
		*list = slices.Insert(*list, at, empty)
	}
	return &(*list)[at]
}

// remove takes a rule out.
func remove[R any, K ~uint8 | ~uint16 | ~uint32](d *wire.Decoder, list *[]R, id K, kind RuleKind, idOf func(*R) K) {
	if d.Err != nil {
		return
	}
	at, found := place(*list, id, idOf)
	if !found {
		d.Fail(wire.FailedRule(kind, uint32(id), errUnknown))
		return
	}
	*list = slices.Delete(*list, at, at+1)
}

// idIn finds the ID of a rule among its IEs: it may stand anywhere.
func idIn(d *wire.Decoder, l wire.IEs, idType uint16, size int) uint32 {
	var id uint32
	found := false
	d.Each(l, func(t uint16, v []byte) {
		if t != idType || found || !d.Need(t, v, size) {
			return
		}
		found = true
		switch size {
		case 1:
			id = uint32(v[0])
		case 2:
			id = uint32(binary.BigEndian.Uint16(v))
		default:
			id = binary.BigEndian.Uint32(v)
		}
	})
	if !found {
		d.Fail(wire.Missing(idType))
	}
	return id
}

// pdrs and its like are the lists of rules to be changed: the first change makes
// a copy, since the session as it was stays.
func (b *builder) pdrs() *[]session.PDR { return own(b, RulePDR, &b.to.PDRs) }
func (b *builder) fars() *[]session.FAR { return own(b, RuleFAR, &b.to.FARs) }
func (b *builder) qers() *[]session.QER { return own(b, RuleQER, &b.to.QERs) }
func (b *builder) urrs() *[]session.URR { return own(b, RuleURR, &b.to.URRs) }
func (b *builder) bars() *[]session.BAR { return own(b, RuleBAR, &b.to.BARs) }

func own[R any](b *builder, kind RuleKind, list *[]R) *[]R {
	if !b.owned[kind] {
		*list = slices.Clone(*list)
		b.owned[kind] = true
	}
	return list
}

func (b *builder) pdr(l wire.IEs, u update) {
	id := uint16(idIn(&b.Decoder, l, ie.PDRID, 2))
	p := rule(&b.Decoder, b.pdrs(), id, u, RulePDR, pdrID)
	if p == nil {
		return
	}
	p.ID = id
	var hasPrecedence, hasPDI, hasFAR, hasQERs, hasURRs bool
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.Precedence:
			p.Precedence = b.U32(t, v)
			hasPrecedence = true
		case ie.PDI:
			if !hasPDI {
				b.pdi(p, v, u)
			}
			hasPDI = true
		case ie.OuterHeaderRemoval:
			if p.RemoveOuter = !u.clears(v); p.RemoveOuter {
				if what := b.U8(t, v); what == 5 || (what > 6 && what != 9) { // VLAN tags
					b.Fail(wire.Unsupported(t))
				}
			}
		case ie.FARID:
			p.FAR = b.U32(t, v)
			hasFAR = true
		case ie.QERID:
			p.QERs = b.appendID(t, v, p.QERs, &hasQERs, u)
		case ie.URRID:
			p.URRs = b.appendID(t, v, p.URRs, &hasURRs, u)
		case ie.ActivatePredefinedRules, ie.DeactivatePredefinedRules:
			b.Fail(&wire.Refusal{Cause: causeUnknownPredefinedRule, Offending: t, Rule: &wire.RuleID{Kind: RulePDR, ID: uint32(id)}})
		case ie.MARID, ie.ActivationTime, ie.DeactivationTime, ie.IPMulticastAddressingInfo,
			ie.TransportDelayReporting, ie.PacketReplicationAndDetectionCarryOnInformation,
			ie.UEIPAddressPoolIdentity, ie.MPTCPApplicableIndication:
			b.Fail(wire.Unsupported(t))
		}
	})
	switch {
	case u == changes:
	case !hasPrecedence:
		b.Fail(wire.Missing(ie.Precedence))
	case !hasPDI:
		b.Fail(wire.Missing(ie.PDI))
	case !hasFAR:
		// Without predefined rules and MARs the condition always holds.
		b.Fail(wire.Missing(ie.FARID))
	}
}

// Causes that go-pfcp has no name for (TS 29.244 table 8.2.1-1).
const (
	causeUnknownPredefinedRule uint8 = 80
	causeUnknownApplication    uint8 = 81
)

// appendID adds to a list of IDs that an update gives anew as a whole.
func (b *builder) appendID(t uint16, v []byte, list []uint32, began *bool, u update) []uint32 {
	if !*began {
		list = nil // the old list may be shared with the old session
		*began = true
	}
	if u.clears(v) {
		return list
	}
	if id := b.U32(t, v); !slices.Contains(list, id) {
		list = append(list, id)
	}
	return list
}

// pdi reads a PDI, which replaces an old one as a whole.
func (b *builder) pdi(p *session.PDR, l wire.IEs, u update) {
	old := p.PDI
	p.PDI = session.PDI{}
	pdi := &p.PDI
	w := want{pdr: p.ID, created: u == create}
	var hasSource, hasTEID bool
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.SourceInterface:
			if hasSource {
				return
			}
			hasSource = true
			pdi.Source = b.sourceInterface(v)
		case ie.FTEID:
			if hasTEID {
				return
			}
			hasTEID = true
			w.fteid = b.ReadFTEID(v)
			pdi.TEID, pdi.TEID4, pdi.TEID6 = w.fteid.TEID, w.fteid.V4, w.fteid.V6
		case ie.NetworkInstance:
			pdi.NetworkInstance = b.Name(v)
		case ie.TGPPInterfaceType:
			kind := session.InterfaceType(b.U8(t, v) & 0x3f)
			pdi.InterfaceType = &kind
		case ie.UEIPAddress:
			ue := b.ReadUEAddress(v, pdi.UE)
			pdi.UE = ue.Prefixes
			w.choose4, w.choose6 = w.choose4 || ue.Choose4, w.choose6 || ue.Choose6
		case ie.FramedRoute, ie.FramedIPv6Route:
			if !b.features.FramedRouting {
				b.Fail(wire.Unsupported(t))
				return
			}
			pdi.FramedRoutes = append(pdi.FramedRoutes, b.FramedRoute(t, v))
		default:
			b.pdiFilter(pdi, t, v)
		}
	})
	if !hasSource {
		b.Fail(wire.Missing(ie.SourceInterface))
	}
	b.checkPDI(pdi)
	b.keepChosen(pdi, &old, &w, u)
	if w.fteid.Choose || w.choose4 || w.choose6 {
		b.wants = append(b.wants, w)
	}
}

// keepChosen: an update that asks with the same CHOOSE ID for what the PDR has
// asks for nothing new; nor does one that names it.
func (b *builder) keepChosen(pdi, old *session.PDI, w *want, u update) {
	if u == changes && old.TEID != 0 && pdi.TEID == old.TEID {
		pdi.ChooseID = old.ChooseID
	}
	if u == create || !w.fteid.Choose || w.fteid.ChooseID == nil || old.ChooseID == nil ||
		*w.fteid.ChooseID != *old.ChooseID {
		return
	}
	pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = old.TEID, old.TEID4, old.TEID6, old.ChooseID
	w.fteid.Choose = false
}

func (b *builder) sourceInterface(v []byte) session.Interface {
	switch i := b.U8(ie.SourceInterface, v) & 0x0f; i {
	case ie.SrcInterfaceAccess, ie.SrcInterfaceCore, ie.SrcInterfaceSGiLANN6LAN, ie.SrcInterfaceCPFunction:
		return session.Interface(i)
	case 4: // 5G VN Internal
		b.Fail(wire.Unsupported(ie.SourceInterface))
	default:
		b.Fail(wire.Incorrect(ie.SourceInterface))
	}
	return 0
}

// pdiFilter is the part of a PDI that looks at packets.
func (b *builder) pdiFilter(pdi *session.PDI, t uint16, v []byte) {
	switch t {
	case ie.SDFFilter:
		pdi.Filters = append(pdi.Filters, b.SDFFilter(v, b.filters))
	case ie.ApplicationID:
		pdi.ApplicationID = string(v)
		b.Need(t, v, 1)
	case ie.QFI:
		pdi.QFIs = append(pdi.QFIs, b.U8(t, v)&0x3f)
	case ie.EthernetPacketFilter:
		pdi.Ethernet = append(pdi.Ethernet, b.ethernetFilter(v))
		b.needEthernet(t)
	case ie.EthernetPDUSessionInformation:
		b.U8(t, v)
		b.needEthernet(t)
	case ie.FramedRouting:
		if b.U32(t, v) != 0 { // routing messages to the UE, or from it (RFC 2865 section 5.10)
			b.Fail(wire.Unsupported(t))
		}
	case ie.TrafficEndpointID, ie.RedundantTransmissionParameters, ie.IPMulticastAddressingInfo:
		b.Fail(wire.Unsupported(t))
	}
}

func (b *builder) needEthernet(t uint16) {
	if !b.features.Ethernet {
		b.Fail(wire.Unsupported(t))
	}
}

// filters are all that the session has, to find a bidirectional one.
func (b *builder) filters(id uint32) (session.Filter, bool) {
	for i := range b.to.PDRs {
		for _, f := range b.to.PDRs[i].PDI.Filters {
			if f.ID != nil && *f.ID == id {
				return f, true
			}
		}
	}
	return session.Filter{}, false
}

// checkPDI is what the IEs of a PDI must be together.
func (b *builder) checkPDI(pdi *session.PDI) {
	if b.Err != nil {
		return
	}
	if !b.features.PrefixLength {
		for _, ue := range pdi.UE {
			if ue.Addr().Is6() && ue.Bits() != 64 {
				b.Fail(wire.Unsupported(ie.UEIPAddress))
			}
		}
	}
	if pdi.ApplicationID == "" {
		return
	}
	if len(pdi.Filters) > 0 {
		// Both would have to match.
		b.Fail(wire.Unsupported(ie.ApplicationID))
		return
	}
	filters, ok := b.apps(pdi.ApplicationID)
	if !ok {
		b.Fail(&wire.Refusal{Cause: causeUnknownApplication, Offending: ie.ApplicationID})
		return
	}
	pdi.Filters = filters
}

func (b *builder) ethernetFilter(l wire.IEs) (f session.EthernetFilter) {
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.MACAddress:
			b.macAddresses(&f, v)
		case ie.EthernetFilterProperties:
			if b.U8(t, v)&1 != 0 { // BIDE: another PDR names it by its ID alone
				b.Fail(wire.Unsupported(t))
			}
		case ie.Ethertype:
			f.EtherType = b.U16(t, v)
		case ie.CTAG:
			f.CVLAN = b.vlan(t, v)
		case ie.STAG:
			f.SVLAN = b.vlan(t, v)
		case ie.SDFFilter:
			f.Filters = append(f.Filters, b.SDFFilter(v, b.filters))
		}
	})
	return f
}

// macAddresses are those of a frame, or the first ones of ranges and the last.
func (b *builder) macAddresses(f *session.EthernetFilter, v []byte) {
	const t = ie.MACAddress
	if !b.Need(t, v, 1) {
		return
	}
	has := func(flag int) bool { return v[0]>>flag&1 != 0 }
	at := 1
	for flag, to := range []*[6]byte{&f.Source, &f.Destination, &f.SourceTo, &f.DestinationTo} {
		if has(flag) && b.Need(t, v, at+6) {
			*to = [6]byte(v[at:])
			at += 6
		}
	}
	for flag, ends := range [][2]*[6]byte{{&f.Source, &f.SourceTo}, {&f.Destination, &f.DestinationTo}} {
		if has(flag+2) && (!has(flag) || bytes.Compare(ends[0][:], ends[1][:]) > 0) {
			b.Fail(wire.Incorrect(t))
		}
	}
}

// vlan is the VLAN ID of a C-TAG or S-TAG. Nothing else of it can be asked for.
func (b *builder) vlan(t uint16, v []byte) *uint16 {
	if !b.Need(t, v, 3) {
		return nil
	}
	if v[0]&7 != 4 { // priority, drop eligibility
		b.Fail(wire.Unsupported(t))
		return nil
	}
	id := uint16(v[1]&0xf0)<<4 | uint16(v[2])
	return &id
}

func (b *builder) far(l wire.IEs, u update) {
	id := idIn(&b.Decoder, l, ie.FARID, 4)
	f := rule(&b.Decoder, b.fars(), id, u, RuleFAR, farID)
	if f == nil {
		return
	}
	f.ID = id
	var hasAction, hasDuplicates bool
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.ApplyAction:
			f.Action = b.action(v)
			hasAction = true
		case ie.ForwardingParameters, ie.UpdateForwardingParameters:
			if u.clears(v) {
				f.Forwarding = nil
				return
			}
			f.Forwarding = b.forwarding(f.Forwarding, v, u, id)
		case ie.DuplicatingParameters, ie.UpdateDuplicatingParameters:
			if !hasDuplicates {
				f.Duplicates = nil
				hasDuplicates = true
			}
			if !u.clears(v) {
				f.Duplicates = append(f.Duplicates, *b.forwarding(nil, v, create, id))
			}
		case ie.BARID:
			f.BAR = nil
			if !u.clears(v) {
				bar := b.U8(t, v)
				f.BAR = &bar
			}
		case ie.RedundantTransmissionForwardingParameters:
			b.Fail(wire.Unsupported(t))
		}
	})
	if u == create && !hasAction {
		b.Fail(wire.Missing(ie.ApplyAction))
	}
	b.checkFAR(f)
}

// action is Apply Action: one of DROP, FORW and BUFF, and what may go with it.
func (b *builder) action(v []byte) session.Action {
	const t = ie.ApplyAction
	a := session.Action(b.U8(t, v))
	if len(v) > 1 {
		a |= session.Action(v[1]) << 8
	}
	const known = session.Drop | session.Forward | session.Buffer | session.Notify | session.Duplicate
	switch what := a & (session.Drop | session.Forward | session.Buffer); {
	case a&^known != 0:
		b.Fail(wire.Unsupported(t))
	case what != session.Drop && what != session.Forward && what != session.Buffer:
		b.Fail(wire.Incorrect(t))
	case a&session.Notify != 0 && what != session.Buffer:
		b.Fail(wire.Incorrect(t))
	case a&session.Duplicate != 0 && !b.features.Duplication:
		b.Fail(wire.Unsupported(t))
	}
	return a
}

func (b *builder) checkFAR(f *session.FAR) {
	switch {
	case b.Err != nil:
	case f.Action&session.Forward != 0 && f.Forwarding == nil:
		b.Fail(wire.ConditionMissing(ie.ForwardingParameters))
	case f.Action&session.Duplicate != 0 && len(f.Duplicates) == 0:
		b.Fail(wire.ConditionMissing(ie.DuplicatingParameters))
	}
}

// forwarding reads Forwarding or Duplicating Parameters onto a copy of the old
// ones.
func (b *builder) forwarding(old *session.Forwarding, l wire.IEs, u update, far uint32) *session.Forwarding {
	f := &session.Forwarding{}
	if u == changes && old != nil {
		*f = *old
	}
	hasDestination := u == changes && old != nil
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.DestinationInterface:
			f.Destination = b.destination(v)
			hasDestination = true
		case ie.NetworkInstance:
			f.NetworkInstance = b.Name(v)
		case ie.TGPPInterfaceType:
			f.InterfaceType = nil
			if !u.clears(v) {
				kind := session.InterfaceType(b.U8(t, v) & 0x3f)
				f.InterfaceType = &kind
			}
		case ie.OuterHeaderCreation:
			f.Outer = nil
			if !u.clears(v) {
				f.Outer = b.OuterHeader(v)
			}
		case ie.TransportLevelMarking:
			f.ToS, f.ToSMask = 0, 0
			if !u.clears(v) && b.Need(t, v, 2) {
				f.ToS, f.ToSMask = v[0], v[1]
			}
		case ie.PFCPSMReqFlags:
			b.forwardingFlags(v, far)
		case ie.ForwardingPolicy:
			if !u.clears(v) {
				b.Fail(&wire.Refusal{Cause: ie.CauseInvalidForwardingPolicy, Offending: t})
			}
		case ie.RedirectInformation, ie.HeaderEnrichment, ie.TrafficEndpointID, ie.Proxying,
			ie.IPMulticastAddressingInfo, ie.DataNetworkAccessIdentifier:
			if !u.clears(v) {
				b.Fail(wire.Unsupported(t))
			}
		}
	})
	if !hasDestination {
		b.Fail(wire.Missing(ie.DestinationInterface))
	}
	return f
}

// Flags of PFCPSMReq-Flags (TS 29.244 section 8.2.28).
const (
	flagDROBU = 1 << 0
	flagSNDEM = 1 << 1
	flagQAURR = 1 << 2
)

func (b *builder) forwardingFlags(v []byte, far uint32) {
	flags := b.U8(ie.PFCPSMReqFlags, v)
	if flags&flagSNDEM != 0 {
		if !b.features.EndMarkers {
			b.Fail(wire.Unsupported(ie.PFCPSMReqFlags))
			return
		}
		b.how.EndMarkers = append(b.how.EndMarkers, far)
	}
}

func (b *builder) destination(v []byte) session.Interface {
	switch i := b.U8(ie.DestinationInterface, v) & 0x0f; i {
	case 0, 1, 2, 3, 4:
		return session.Interface(i)
	case 5: // 5G VN Internal
		b.Fail(wire.Unsupported(ie.DestinationInterface))
	default:
		b.Fail(wire.Incorrect(ie.DestinationInterface))
	}
	return 0
}

func (b *builder) qer(l wire.IEs, u update) {
	id := idIn(&b.Decoder, l, ie.QERID, 4)
	q := rule(&b.Decoder, b.qers(), id, u, RuleQER, qerID)
	if q == nil {
		return
	}
	q.ID = id
	hasGate := false
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.GateStatus:
			gate := b.U8(t, v)
			q.DownlinkClosed, q.UplinkClosed = gate&3 != 0, gate>>2&3 != 0
			hasGate = true
		case ie.MBR:
			q.MBR = b.rate(t, v, u)
		case ie.GBR:
			q.GBR = b.rate(t, v, u)
		case ie.PacketRate:
			q.PacketRate = nil
			if u.clears(v) {
				return
			}
			if !b.features.PacketRate {
				b.Fail(wire.Unsupported(t))
				return
			}
			q.PacketRate = b.PacketRate(v)
		case ie.QFI:
			q.QFI = nil
			if !u.clears(v) {
				qfi := b.U8(t, v) & 0x3f
				q.QFI = &qfi
			}
		case ie.RQI:
			q.Reflective = !u.clears(v) && b.U8(t, v)&1 != 0
		case ie.AveragingWindow:
			b.averagingWindow(v, u)
		case ie.QERCorrelationID, // a limit that sessions share
			ie.DLFlowLevelMarking, ie.PacketRateStatus, ie.PagingPolicyIndicator, ie.QERControlIndications:
			if !u.clears(v) {
				b.Fail(wire.Unsupported(t))
			}
		}
	})
	if u == create && !hasGate {
		b.Fail(wire.Missing(ie.GateStatus))
	}
}

// meterWindow is how much of the past a rate is measured over (docs/reference/semantics.md
// section 7, "Meter").
const meterWindow = 64 * time.Millisecond

// averagingWindow: a rate that is kept over a short time is kept over a longer
// one too.
func (b *builder) averagingWindow(v []byte, u update) {
	const t = ie.AveragingWindow
	if u.clears(v) {
		return
	}
	if window := b.U32(t, v); time.Duration(window)*time.Millisecond < meterWindow {
		b.Fail(wire.Unsupported(t))
	}
}

func (b *builder) rate(t uint16, v []byte, u update) *session.BitRate {
	if u.clears(v) {
		return nil
	}
	return b.BitRate(t, v)
}

func (b *builder) bar(l wire.IEs, u update) {
	id := uint8(idIn(&b.Decoder, l, ie.BARID, 1))
	r := rule(&b.Decoder, b.bars(), id, u, RuleBAR, barID)
	if r == nil {
		return
	}
	r.ID = id
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.DownlinkDataNotificationDelay:
			r.NotificationDelay = 0
			if u.clears(v) {
				return
			}
			r.NotificationDelay = time.Duration(b.U8(t, v)) * 50 * time.Millisecond
			if r.NotificationDelay > 0 && !b.features.NotificationDelay {
				b.Fail(wire.Unsupported(t))
			}
		case ie.SuggestedBufferingPacketsCount:
			r.SuggestedCount = 0
			if !u.clears(v) {
				r.SuggestedCount = uint16(b.U8(t, v))
			}
		case ie.DLBufferingSuggestedPacketCount: // in a Session Report Response
			if b.Need(t, v, 1) {
				r.SuggestedCount = uint16(v[0])
				if len(v) > 1 {
					r.SuggestedCount = binary.BigEndian.Uint16(v)
				}
			}
		case ie.MTEDTControlInformation:
			b.Fail(wire.Unsupported(t))
		}
	})
}
