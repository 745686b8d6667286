package pfcp

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// establishment is what a Session Establishment Request says besides rules.
type establishment struct {
	node   string
	cpSEID uint64
	hasCP  bool
}

// establish reads a Session Establishment Request into b.to. What could be read
// before an error is in the result: the answer needs the CP F-SEID.
func (b *builder) establish(l wire.IEs) (e establishment) {
	var hasNode, hasPDR, hasFAR bool
	b.makeRoom(l)
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.NodeID:
			e.node = b.NodeID(v)
			hasNode = true
		case ie.FSEID:
			b.controlPlane(v)
			e.cpSEID, e.hasCP = b.to.CPSEID, b.Err == nil
		case ie.CreatePDR:
			b.pdr(v, create)
			hasPDR = true
		case ie.CreateFAR:
			b.far(v, create)
			hasFAR = true
		case ie.PDNType:
			b.to.PDNType = session.PDNType(b.U8(t, v) & 7)
			b.checkPDNType()
		case ie.SNSSAI:
			b.to.SNSSAI = b.SNSSAI(v)
		case ie.APNDNN:
			b.to.DNN = b.Name(v)
		case ie.UserID:
			b.to.UserID = b.UserID(v)
		case ie.CreateBridgeInfoForTSC, ie.ProvideRDSConfigurationInformation:
			b.Fail(wire.Unsupported(t))
		default:
			b.anyRequest(t, v)
		}
	})
	switch {
	case !hasNode:
		b.Fail(wire.Missing(ie.NodeID))
	case !e.hasCP:
		b.Fail(wire.Missing(ie.FSEID))
	case !hasPDR:
		b.Fail(wire.Missing(ie.CreatePDR))
	case !hasFAR:
		b.Fail(wire.Missing(ie.CreateFAR))
	}
	return e
}

// makeRoom makes the lists of a new session as large as they get.
func (b *builder) makeRoom(l wire.IEs) {
	var count [5]int
	b.Each(l, func(t uint16, _ []byte) {
		switch t {
		case ie.CreatePDR:
			count[RulePDR]++
		case ie.CreateFAR:
			count[RuleFAR]++
		case ie.CreateQER:
			count[RuleQER]++
		case ie.CreateURR:
			count[RuleURR]++
		case ie.CreateBAR:
			count[RuleBAR]++
		}
	})
	b.to.PDRs = room[session.PDR](count[RulePDR])
	b.to.FARs = room[session.FAR](count[RuleFAR])
	b.to.QERs = room[session.QER](count[RuleQER])
	b.to.URRs = room[session.URR](count[RuleURR])
	b.to.BARs = room[session.BAR](count[RuleBAR])
	b.owned = [5]bool{true, true, true, true, true}
}

func room[R any](n int) []R {
	if n == 0 {
		return nil
	}
	return make([]R, 0, n)
}

// anyRequest are IEs that establishment and modification share.
func (b *builder) anyRequest(t uint16, v []byte) {
	switch t {
	case ie.CreateQER:
		b.qer(v, create)
	case ie.CreateURR:
		b.urr(v, create)
	case ie.CreateBAR:
		b.bar(v, create)
	case ie.UserPlaneInactivityTimer:
		b.to.InactivityTimer = b.Seconds(t, v)
	case ie.CreateMAR, ie.CreateSRR, ie.CreateTrafficEndpoint, ie.ProvideATSSSControlInformation:
		b.Fail(wire.Unsupported(t))
	case ie.TraceInformation:
		if len(v) > 0 { // of length 0 it ends a trace
			b.Fail(wire.Unsupported(t))
		}
	}
}

func (b *builder) checkPDNType() {
	switch b.to.PDNType {
	case session.PDNIPv4, session.PDNIPv6, session.PDNIPv4v6:
	case session.PDNUnstructured:
		if !b.features.Unstructured {
			b.Fail(wire.Unsupported(ie.PDNType))
		}
	case session.PDNEthernet:
		b.needEthernet(ie.PDNType)
	default:
		b.Fail(wire.Incorrect(ie.PDNType))
	}
}

// controlPlane is the CP F-SEID. Of two addresses the one of the family that
// the request came by is used.
func (b *builder) controlPlane(v []byte) {
	seid, v4, v6 := b.FSEID(v)
	if b.Err != nil {
		return
	}
	addr := v4
	if !v4.IsValid() || (v6.IsValid() && b.prefer6) {
		addr = v6
	}
	if seid == 0 || addr.IsUnspecified() || addr.IsMulticast() {
		b.Fail(wire.Incorrect(ie.FSEID))
		return
	}
	b.to.CPSEID, b.to.CPAddr = seid, addr
}

// modify reads a Session Modification Request onto b.to, a copy of the session
// as it is.
func (b *builder) modify(l wire.IEs) {
	// What is removed makes place for what is created with the same ID.
	b.Each(l, b.removal)
	b.Each(l, func(t uint16, v []byte) {
		switch t {
		case ie.FSEID:
			b.controlPlane(v)
		case ie.CreatePDR:
			b.pdr(v, create)
		case ie.CreateFAR:
			b.far(v, create)
		case ie.UpdatePDR:
			b.pdr(v, changes)
		case ie.UpdateFAR:
			b.far(v, changes)
		case ie.UpdateQER:
			b.qer(v, changes)
		case ie.UpdateURR:
			b.urr(v, changes)
		case ie.UpdateBARWithinSessionModificationRequest:
			b.bar(v, changes)
		case ie.QueryURR:
			b.query(v)
		case ie.QueryURRReference:
			ref := b.U32(t, v)
			b.queryRef = &ref
		case ie.PFCPSMReqFlags:
			b.modificationFlags(v)
		case ie.UpdateMAR, ie.UpdateSRR, ie.UpdateTrafficEndpoint,
			ie.QueryPacketRateStatusWithinSessionModificationRequest, ie.AccessAvailabilityControlInformation,
			ie.TSCManagementInformationWithinSessionModificationRequest, ie.EthernetContextInformation:
			b.Fail(wire.Unsupported(t))
		default:
			b.anyRequest(t, v)
		}
	})
}

func (b *builder) modificationFlags(v []byte) {
	flags := b.U8(ie.PFCPSMReqFlags, v)
	b.how.DropBuffered = flags&flagDROBU != 0
	b.how.QueryAll = flags&flagQAURR != 0
	if flags&^(flagDROBU|flagSNDEM|flagQAURR) != 0 { // charging that pauses, among others
		b.Fail(wire.Unsupported(ie.PFCPSMReqFlags))
	}
}

func (b *builder) removal(t uint16, v []byte) {
	switch t {
	case ie.RemovePDR:
		remove(&b.Decoder, b.pdrs(), uint16(idIn(&b.Decoder, v, ie.PDRID, 2)), RulePDR, pdrID)
	case ie.RemoveFAR:
		remove(&b.Decoder, b.fars(), idIn(&b.Decoder, v, ie.FARID, 4), RuleFAR, farID)
	case ie.RemoveQER:
		remove(&b.Decoder, b.qers(), idIn(&b.Decoder, v, ie.QERID, 4), RuleQER, qerID)
	case ie.RemoveURR:
		remove(&b.Decoder, b.urrs(), idIn(&b.Decoder, v, ie.URRID, 4), RuleURR, urrID)
	case ie.RemoveBAR:
		remove(&b.Decoder, b.bars(), uint8(idIn(&b.Decoder, v, ie.BARID, 1)), RuleBAR, barID)
	case ie.RemoveMAR, ie.RemoveSRR, ie.RemoveTrafficEndpoint:
		b.Fail(wire.Unsupported(t))
	}
}

// query is a Query URR: one URR or several. A URR that is not there fails the
// request, as an update of it would.
func (b *builder) query(l wire.IEs) {
	found := false
	b.Each(l, func(t uint16, v []byte) {
		if t != ie.URRID {
			return
		}
		found = true
		id := b.U32(t, v)
		if _, ok := place(b.to.URRs, id, urrID); !ok {
			b.Fail(wire.FailedRule(RuleURR, id, errUnknown))
		}
		b.how.QueryURRs = append(b.how.QueryURRs, id)
	})
	if !found {
		b.Fail(wire.Missing(ie.URRID))
	}
}

var errDangling = errors.New("it refers to a rule that is not there")

// references checks that what rules refer to is there.
func (b *builder) references() {
	s := b.to
	for i := range s.PDRs {
		p := &s.PDRs[i]
		_, ok := place(s.FARs, p.FAR, farID)
		for _, id := range p.QERs {
			_, found := place(s.QERs, id, qerID)
			ok = ok && found
		}
		for _, id := range p.URRs {
			_, found := place(s.URRs, id, urrID)
			ok = ok && found
		}
		if !ok {
			b.Fail(wire.FailedRule(RulePDR, uint32(p.ID), errDangling))
		}
	}
	for i := range s.FARs {
		if bar := s.FARs[i].BAR; bar != nil {
			if _, ok := place(s.BARs, *bar, barID); !ok {
				b.Fail(wire.FailedRule(RuleFAR, s.FARs[i].ID, errDangling))
			}
		}
	}
	for i := range s.URRs {
		if far := s.URRs[i].FARForQuotaAction; far != nil {
			if _, ok := place(s.FARs, *far, farID); !ok {
				b.Fail(wire.FailedRule(RuleURR, s.URRs[i].ID, errDangling))
			}
		}
	}
}

// holding is what a session has of the user plane's TEIDs and addresses, each
// once.
type holding struct {
	teids []uint32
	ues   []netip.Prefix
}

func held(s *session.Session) (h holding) {
	if s == nil {
		return h
	}
	for i := range s.PDRs {
		pdi := &s.PDRs[i].PDI
		if pdi.TEID != 0 && !slices.Contains(h.teids, pdi.TEID) {
			h.teids = append(h.teids, pdi.TEID)
		}
		for _, ue := range pdi.UE {
			if !slices.Contains(h.ues, ue) {
				h.ues = append(h.ues, ue)
			}
		}
	}
	return h
}

// without is what h has and other has not.
func (h holding) without(other holding) (rest holding) {
	for _, teid := range h.teids {
		if !slices.Contains(other.teids, teid) {
			rest.teids = append(rest.teids, teid)
		}
	}
	for _, ue := range h.ues {
		if !slices.Contains(other.ues, ue) {
			rest.ues = append(rest.ues, ue)
		}
	}
	return rest
}

func (h holding) free(upf UPF) {
	for _, teid := range h.teids {
		upf.FreeTEID(teid)
	}
	if len(h.ues) > 0 {
		upf.FreeUE(h.ues)
	}
}

// take gets what the new session needs and the old one had not: what the SMF
// names, and what it left to us. On an error all of it is given back.
func (b *builder) take(upf UPF, had holding) (got holding) {
	named := held(b.to).without(had)
	for _, teid := range named.teids {
		if err := upf.TakeTEID(teid); err != nil {
			b.Fail(fromUPF(&RuleError{Kind: RulePDR, ID: b.pdrWith(teid), Err: err}))
			break
		}
		got.teids = append(got.teids, teid)
	}
	if b.Err == nil && len(named.ues) > 0 {
		if err := upf.TakeUE(named.ues); err != nil {
			b.Fail(fromUPF(&RuleError{Kind: RulePDR, ID: b.pdrWithUE(named.ues[0]), Err: err}))
		} else {
			got.ues = append(got.ues, named.ues...)
		}
	}
	if b.Err == nil && len(b.wants) > 0 {
		b.chooseTEIDs(upf, &got)
		b.chooseUEs(upf, &got)
	}
	if b.Err != nil {
		got.free(upf)
		return holding{}
	}
	return got
}

func (b *builder) pdrWith(teid uint32) uint32 {
	for i := range b.to.PDRs {
		if b.to.PDRs[i].PDI.TEID == teid {
			return uint32(b.to.PDRs[i].ID)
		}
	}
	return 0
}

func (b *builder) pdrWithUE(ue netip.Prefix) uint32 {
	for i := range b.to.PDRs {
		if slices.Contains(b.to.PDRs[i].PDI.UE, ue) {
			return uint32(b.to.PDRs[i].ID)
		}
	}
	return 0
}

// chooseTEIDs gives F-TEIDs to PDRs that ask for one: those with the same CHOOSE
// ID, of this request or an earlier one, share it.
func (b *builder) chooseTEIDs(upf UPF, got *holding) {
	for i := range b.wants {
		w := &b.wants[i]
		if !w.fteid.Choose || b.Err != nil {
			continue
		}
		at, ok := place(b.to.PDRs, w.pdr, pdrID)
		if !ok {
			continue
		}
		pdi := &b.to.PDRs[at].PDI
		w.tellTEID = true
		if shared := b.chosen(w.fteid.ChooseID); shared != nil {
			pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = shared.TEID, shared.TEID4, shared.TEID6, shared.ChooseID
			continue
		}
		v4, v6 := upf.GTPUAddresses(pdi.Source, pdi.NetworkInstance)
		if w.fteid.Wants4 {
			pdi.TEID4 = v4
		}
		if w.fteid.Wants6 {
			pdi.TEID6 = v6
		}
		if !pdi.TEID4.IsValid() && !pdi.TEID6.IsValid() {
			b.Fail(&wire.Refusal{Cause: ie.CauseInvalidFTEIDAllocationOption, Offending: ie.FTEID})
			return
		}
		teid, err := upf.NewTEID()
		if err != nil {
			b.Fail(fromUPF(&RuleError{Kind: RulePDR, ID: uint32(w.pdr), Err: err}))
			return
		}
		got.teids = append(got.teids, teid)
		pdi.TEID, pdi.ChooseID = teid, w.fteid.ChooseID
	}
}

// chosen is the PDI that has the F-TEID of a CHOOSE ID.
func (b *builder) chosen(id *uint8) *session.PDI {
	if id == nil {
		return nil
	}
	for i := range b.to.PDRs {
		pdi := &b.to.PDRs[i].PDI
		if pdi.TEID != 0 && pdi.ChooseID != nil && *pdi.ChooseID == *id {
			return pdi
		}
	}
	return nil
}

// chooseUEs gives UE addresses to PDRs that ask for one. A session has one of
// each family.
func (b *builder) chooseUEs(upf UPF, got *holding) {
	var need4, need6 bool
	instance := ""
	for _, w := range b.wants {
		need4, need6 = need4 || w.choose4, need6 || w.choose6
		if at, ok := place(b.to.PDRs, w.pdr, pdrID); ok && instance == "" && (w.choose4 || w.choose6) {
			instance = b.to.PDRs[at].PDI.NetworkInstance
		}
	}
	if b.Err != nil || (!need4 && !need6) {
		return
	}
	if !b.features.UEAddresses {
		b.Fail(wire.Unsupported(ie.UEIPAddress))
		return
	}
	var v4, v6 netip.Prefix
	for _, ue := range held(b.to).ues {
		if ue.Addr().Is4() && ue.Bits() == 32 {
			v4 = ue
		} else if ue.Addr().Is6() {
			v6 = ue
		}
	}
	need4, need6 = need4 && !v4.IsValid(), need6 && !v6.IsValid()
	if need4 || need6 {
		ues, err := upf.NewUE(instance, need4, need6)
		if err != nil {
			b.Fail(fromUPF(err))
			return
		}
		got.ues = append(got.ues, ues...)
		for _, ue := range ues {
			if ue.Addr().Is4() {
				v4 = ue
			} else {
				v6 = ue
			}
		}
	}
	b.giveUEs(v4, v6)
}

func (b *builder) giveUEs(v4, v6 netip.Prefix) {
	for i := range b.wants {
		w := &b.wants[i]
		at, ok := place(b.to.PDRs, w.pdr, pdrID)
		if !ok {
			continue
		}
		if w.choose4 {
			w.tellUE = append(w.tellUE, v4)
		}
		if w.choose6 {
			w.tellUE = append(w.tellUE, v6)
		}
		b.to.PDRs[at].PDI.UE = append(b.to.PDRs[at].PDI.UE, w.tellUE...)
	}
}

// createdPDRs tell the SMF what we chose, in the order of its request.
func (b *builder) createdPDRs() []*ie.IE {
	var list []*ie.IE
	for _, w := range b.wants {
		at, ok := place(b.to.PDRs, w.pdr, pdrID)
		if !ok || (!w.tellTEID && len(w.tellUE) == 0) {
			continue
		}
		parts := []*ie.IE{ie.NewPDRID(w.pdr)}
		if w.tellTEID {
			parts = append(parts, wire.NewFTEID(&b.to.PDRs[at].PDI))
		}
		if len(w.tellUE) > 0 {
			parts = append(parts, wire.NewUEAddress(w.tellUE))
		}
		if w.created {
			list = append(list, ie.NewCreatedPDR(parts...))
		} else {
			list = append(list, ie.NewUpdatedPDR(parts...))
		}
	}
	return list
}

// fromUPF is the answer to an error of the user plane.
func fromUPF(err error) *wire.Refusal {
	r := &wire.Refusal{Cause: ie.CauseSystemFailure, Err: err}
	switch {
	case errors.Is(err, ErrNoResources):
		r.Cause = ie.CauseNoResourcesAvailable
	case errors.Is(err, ErrTaken):
		r.Cause = ie.CauseRuleCreationModificationFailure
	case errors.Is(err, ErrUnsupported):
		r.Cause = ie.CauseServiceNotSupported
	}
	if rule, ok := errors.AsType[*RuleError](err); ok {
		r.Rule = &wire.RuleID{Kind: rule.Kind, ID: rule.ID}
	}
	return r
}
