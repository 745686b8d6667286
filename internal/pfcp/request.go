package pfcp

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

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
func (b *builder) establish(l ies) (e establishment) {
	var hasNode, hasPDR, hasFAR bool
	b.makeRoom(l)
	b.each(l, func(t uint16, v []byte) {
		switch t {
		case ie.NodeID:
			e.node = b.nodeID(v)
			hasNode = true
		case ie.FSEID:
			b.controlPlane(v)
			e.cpSEID, e.hasCP = b.to.CPSEID, b.err == nil
		case ie.CreatePDR:
			b.pdr(v, create)
			hasPDR = true
		case ie.CreateFAR:
			b.far(v, create)
			hasFAR = true
		case ie.PDNType:
			b.to.PDNType = session.PDNType(b.u8(t, v) & 7)
			b.checkPDNType()
		case ie.SNSSAI:
			b.to.SNSSAI = b.snssai(v)
		case ie.APNDNN:
			b.to.DNN = b.name(v)
		case ie.UserID:
			b.to.UserID = b.userID(v)
		case ie.CreateBridgeInfoForTSC, ie.ProvideRDSConfigurationInformation:
			b.fail(unsupported(t))
		default:
			b.anyRequest(t, v)
		}
	})
	switch {
	case !hasNode:
		b.fail(missing(ie.NodeID))
	case !e.hasCP:
		b.fail(missing(ie.FSEID))
	case !hasPDR:
		b.fail(missing(ie.CreatePDR))
	case !hasFAR:
		b.fail(missing(ie.CreateFAR))
	}
	return e
}

// makeRoom makes the lists of a new session as large as they get.
func (b *builder) makeRoom(l ies) {
	var count [5]int
	b.each(l, func(t uint16, _ []byte) {
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
		b.to.InactivityTimer = b.seconds(t, v)
	case ie.CreateMAR, ie.CreateSRR, ie.CreateTrafficEndpoint, ie.ProvideATSSSControlInformation:
		b.fail(unsupported(t))
	case ie.TraceInformation:
		if len(v) > 0 { // of length 0 it ends a trace
			b.fail(unsupported(t))
		}
	}
}

func (b *builder) checkPDNType() {
	switch b.to.PDNType {
	case session.PDNIPv4, session.PDNIPv6, session.PDNIPv4v6:
	case session.PDNUnstructured:
		if !b.features.Unstructured {
			b.fail(unsupported(ie.PDNType))
		}
	case session.PDNEthernet:
		b.needEthernet(ie.PDNType)
	default:
		b.fail(incorrect(ie.PDNType))
	}
}

// controlPlane is the CP F-SEID. Of two addresses the one of the family that
// the request came by is used.
func (b *builder) controlPlane(v []byte) {
	seid, v4, v6 := b.fseid(v)
	if b.err != nil {
		return
	}
	addr := v4
	if !v4.IsValid() || (v6.IsValid() && b.prefer6) {
		addr = v6
	}
	if seid == 0 || addr.IsUnspecified() || addr.IsMulticast() {
		b.fail(incorrect(ie.FSEID))
		return
	}
	b.to.CPSEID, b.to.CPAddr = seid, addr
}

// modify reads a Session Modification Request onto b.to, a copy of the session
// as it is.
func (b *builder) modify(l ies) {
	// What is removed makes place for what is created with the same ID.
	b.each(l, b.removal)
	b.each(l, func(t uint16, v []byte) {
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
			ref := b.u32(t, v)
			b.queryRef = &ref
		case ie.PFCPSMReqFlags:
			b.modificationFlags(v)
		case ie.UpdateMAR, ie.UpdateSRR, ie.UpdateTrafficEndpoint,
			ie.QueryPacketRateStatusWithinSessionModificationRequest, ie.AccessAvailabilityControlInformation,
			ie.TSCManagementInformationWithinSessionModificationRequest, ie.EthernetContextInformation:
			b.fail(unsupported(t))
		default:
			b.anyRequest(t, v)
		}
	})
}

func (b *builder) modificationFlags(v []byte) {
	flags := b.u8(ie.PFCPSMReqFlags, v)
	b.how.DropBuffered = flags&flagDROBU != 0
	b.how.QueryAll = flags&flagQAURR != 0
	if flags&^(flagDROBU|flagSNDEM|flagQAURR) != 0 { // charging that pauses, among others
		b.fail(unsupported(ie.PFCPSMReqFlags))
	}
}

func (b *builder) removal(t uint16, v []byte) {
	switch t {
	case ie.RemovePDR:
		remove(&b.decoder, b.pdrs(), uint16(b.idIn(v, ie.PDRID, 2)), RulePDR, pdrID)
	case ie.RemoveFAR:
		remove(&b.decoder, b.fars(), b.idIn(v, ie.FARID, 4), RuleFAR, farID)
	case ie.RemoveQER:
		remove(&b.decoder, b.qers(), b.idIn(v, ie.QERID, 4), RuleQER, qerID)
	case ie.RemoveURR:
		remove(&b.decoder, b.urrs(), b.idIn(v, ie.URRID, 4), RuleURR, urrID)
	case ie.RemoveBAR:
		remove(&b.decoder, b.bars(), uint8(b.idIn(v, ie.BARID, 1)), RuleBAR, barID)
	case ie.RemoveMAR, ie.RemoveSRR, ie.RemoveTrafficEndpoint:
		b.fail(unsupported(t))
	}
}

// query is a Query URR: one URR or several. A URR that is not there fails the
// request, as an update of it would.
func (b *builder) query(l ies) {
	found := false
	b.each(l, func(t uint16, v []byte) {
		if t != ie.URRID {
			return
		}
		found = true
		id := b.u32(t, v)
		if _, ok := place(b.to.URRs, id, urrID); !ok {
			b.fail(failedRule(RuleURR, id, errUnknown))
		}
		b.how.QueryURRs = append(b.how.QueryURRs, id)
	})
	if !found {
		b.fail(missing(ie.URRID))
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
			b.fail(failedRule(RulePDR, uint32(p.ID), errDangling))
		}
	}
	for i := range s.FARs {
		if bar := s.FARs[i].BAR; bar != nil {
			if _, ok := place(s.BARs, *bar, barID); !ok {
				b.fail(failedRule(RuleFAR, s.FARs[i].ID, errDangling))
			}
		}
	}
	for i := range s.URRs {
		if far := s.URRs[i].FARForQuotaAction; far != nil {
			if _, ok := place(s.FARs, *far, farID); !ok {
				b.fail(failedRule(RuleURR, s.URRs[i].ID, errDangling))
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
			b.fail(fromUPF(&RuleError{RulePDR, b.pdrWith(teid), err}))
			break
		}
		got.teids = append(got.teids, teid)
	}
	if b.err == nil && len(named.ues) > 0 {
		if err := upf.TakeUE(named.ues); err != nil {
			b.fail(fromUPF(&RuleError{RulePDR, b.pdrWithUE(named.ues[0]), err}))
		} else {
			got.ues = append(got.ues, named.ues...)
		}
	}
	if b.err == nil && len(b.wants) > 0 {
		b.chooseTEIDs(upf, &got)
		b.chooseUEs(upf, &got)
	}
	if b.err != nil {
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
		if !w.fteid.choose || b.err != nil {
			continue
		}
		at, ok := place(b.to.PDRs, w.pdr, pdrID)
		if !ok {
			continue
		}
		pdi := &b.to.PDRs[at].PDI
		w.tellTEID = true
		if shared := b.chosen(w.fteid.chooseID); shared != nil {
			pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = shared.TEID, shared.TEID4, shared.TEID6, shared.ChooseID
			continue
		}
		v4, v6 := upf.GTPUAddresses(pdi.Source, pdi.NetworkInstance)
		if w.fteid.wants4 {
			pdi.TEID4 = v4
		}
		if w.fteid.wants6 {
			pdi.TEID6 = v6
		}
		if !pdi.TEID4.IsValid() && !pdi.TEID6.IsValid() {
			b.fail(&reject{cause: ie.CauseInvalidFTEIDAllocationOption, offending: ie.FTEID})
			return
		}
		teid, err := upf.NewTEID()
		if err != nil {
			b.fail(fromUPF(&RuleError{RulePDR, uint32(w.pdr), err}))
			return
		}
		got.teids = append(got.teids, teid)
		pdi.TEID, pdi.ChooseID = teid, w.fteid.chooseID
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
	if b.err != nil || (!need4 && !need6) {
		return
	}
	if !b.features.UEAddresses {
		b.fail(unsupported(ie.UEIPAddress))
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
			b.fail(fromUPF(err))
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
			parts = append(parts, newFTEID(&b.to.PDRs[at].PDI))
		}
		if len(w.tellUE) > 0 {
			parts = append(parts, newUEAddress(w.tellUE))
		}
		if w.created {
			list = append(list, ie.NewCreatedPDR(parts...))
		} else {
			list = append(list, ie.NewUpdatedPDR(parts...))
		}
	}
	return list
}
