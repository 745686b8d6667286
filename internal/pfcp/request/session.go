package request

import (
	"errors"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// Builder makes a session from a request: a new one, or what an old one becomes.
// Err of the Decoder says why the request must be refused.
type Builder struct {
	wire.Decoder
	Features session.Features
	// Apps returns the filters of an application that PFDs describe.
	Apps func(id string) ([]session.Filter, bool)
	// Prefer6: of two addresses of the SMF its IPv6 address is used.
	Prefer6 bool

	To    *session.Session
	How   session.Modification
	Wants []Want
	// QueryRef of a modification goes back in the reports that it asks for.
	QueryRef *uint32

	owned   [5]bool // by RuleKind: lists that are not shared with another session
	removed []removed

	// Of the rule that is being read: whether it exists already, what its PDI
	// leaves to the user plane, and the FAR that Forwarding Parameters are of.
	update update
	want   Want
	far    uint32
}

// removed is a rule that the request has removed.
type removed struct {
	kind session.RuleKind
	id   uint32
}

// Want is what a PDR leaves to the user plane.
type Want struct {
	PDR              uint16
	Created          bool // by Create PDR, else by Update PDR
	FTEID            wire.FTEID
	Choose4, Choose6 bool
}

// OwnsPDRs says whether the request changes PDRs.
func (b *Builder) OwnsPDRs() bool { return b.owned[session.RulePDR] }

// common are the rows that establishment and modification share.
var common = slices.Concat([]row[*session.Session]{
	{ie.CreateQER, 0, qers.created, nil},
	{ie.CreateURR, 0, urrs.created, nil},
	{ie.CreateBAR, 0, bars.created, nil},
	{ie.UserPlaneInactivityTimer, 0, func(b *Builder, i wire.IE, _ *session.Session) { b.To.InactivityTimer = i.Seconds() }, nil},
	{ie.TraceInformation, 0, func(_ *Builder, i wire.IE, _ *session.Session) {
		if len(i.Value()) > 0 { // an empty one ends a trace
			i.Unsupported()
		}
	}, nil},
}, refused[*session.Session](0,
	ie.CreateMAR, ie.CreateSRR, ie.CreateTrafficEndpoint, ie.ProvideATSSSControlInformation,
))

var establishment = newGroup(nil, common, []row[*session.Session]{
	{ie.NodeID, mandatory, func(_ *Builder, i wire.IE, _ *session.Session) { i.NodeID() }, nil},
	{ie.FSEID, mandatory, readControlPlane, nil},
	{ie.CreatePDR, mandatory, pdrs.created, nil},
	{ie.CreateFAR, mandatory, fars.created, nil},
	{ie.PDNType, 0, readPDNType, nil},
	{ie.SNSSAI, 0, func(b *Builder, i wire.IE, _ *session.Session) { b.To.SNSSAI = i.SNSSAI() }, nil},
	{ie.APNDNN, 0, func(b *Builder, i wire.IE, _ *session.Session) { b.To.DNN = i.Name() }, nil},
	{ie.UserID, 0, func(b *Builder, i wire.IE, _ *session.Session) { b.To.UserID = i.UserID() }, nil},
}, refused[*session.Session](0, ie.CreateBridgeInfoForTSC, ie.ProvideRDSConfigurationInformation))

var removal = newGroup(nil, []row[*session.Session]{
	{ie.RemovePDR, 0, pdrs.removed, nil},
	{ie.RemoveFAR, 0, fars.removed, nil},
	{ie.RemoveQER, 0, qers.removed, nil},
	{ie.RemoveURR, 0, urrs.removed, nil},
	{ie.RemoveBAR, 0, bars.removed, nil},
}, refused[*session.Session](0, ie.RemoveMAR, ie.RemoveSRR, ie.RemoveTrafficEndpoint))

var modification = newGroup(nil, common, []row[*session.Session]{
	{ie.FSEID, 0, readControlPlane, nil},
	{ie.CreatePDR, 0, pdrs.created, nil},
	{ie.CreateFAR, 0, fars.created, nil},
	{ie.UpdatePDR, 0, pdrs.updated, nil},
	{ie.UpdateFAR, 0, fars.updated, nil},
	{ie.UpdateQER, 0, qers.updated, nil},
	{ie.UpdateURR, 0, urrs.updated, nil},
	{ie.UpdateBARWithinSessionModificationRequest, 0, bars.updated, nil},
	{ie.QueryURR, 0, readQuery, nil},
	{ie.QueryURRReference, 0, func(b *Builder, i wire.IE, _ *session.Session) { b.QueryRef = new(i.U32()) }, nil},
	{ie.PFCPSMReqFlags, 0, readModificationFlags, nil},
}, refused[*session.Session](0,
	ie.UpdateMAR, ie.UpdateSRR, ie.UpdateTrafficEndpoint, ie.QueryPacketRateStatusWithinSessionModificationRequest,
	ie.AccessAvailabilityControlInformation, ie.TSCManagementInformationWithinSessionModificationRequest,
	ie.EthernetContextInformation,
))

// Establishment reads a Session Establishment Request into b.To, which is
// empty.
func (b *Builder) Establishment(l wire.IEs) {
	b.makeRoom(l)
	establishment.complete(b, establishment.read(b, b.To, l, create))
}

// Modification reads a Session Modification Request into b.To, a copy of the
// session as it is. It removes rules first: a new rule may take the ID of one
// that is removed.
func (b *Builder) Modification(l wire.IEs) {
	removal.read(b, b.To, l, create)
	modification.read(b, b.To, l, create)
}

// ReportResponse reads what a Session Report Response changes in b.To, and
// returns its Cause and whether anything changes.
func (b *Builder) ReportResponse(l wire.IEs) (cause uint8, changed bool) {
	for i := range b.Each(l) {
		switch i.Type() {
		case ie.Cause:
			cause = i.U8()
		case ie.UpdateBARWithinSessionReportResponse:
			bars.read(b, i.Value(), changes)
			changed = true
		case ie.PFCPSRRspFlags:
			b.How.DropBuffered = i.U8()&1 != 0
			changed = changed || b.How.DropBuffered
		}
	}
	return cause, changed
}

// makeRoom gives the lists of a new session the size that they will have.
func (b *Builder) makeRoom(l wire.IEs) {
	var n [ie.CreateBAR + 1]int // IEs by type; none of those that count is higher
	for i := range b.Each(l) {
		if t := i.Type(); int(t) < len(n) {
			n[t]++
		}
	}
	s := b.To
	s.PDRs, s.FARs = slices.Grow(s.PDRs, n[ie.CreatePDR]), slices.Grow(s.FARs, n[ie.CreateFAR])
	s.QERs, s.URRs = slices.Grow(s.QERs, n[ie.CreateQER]), slices.Grow(s.URRs, n[ie.CreateURR])
	s.BARs = slices.Grow(s.BARs, n[ie.CreateBAR])
	b.owned = [...]bool{true, true, true, true, true}
}

func readPDNType(b *Builder, i wire.IE, _ *session.Session) {
	b.To.PDNType = session.PDNType(i.U8() & 7)
	switch b.To.PDNType {
	case session.PDNIPv4, session.PDNIPv6, session.PDNIPv4v6:
	case session.PDNUnstructured:
		i.Supported(b.Features.Unstructured)
	case session.PDNEthernet:
		i.Supported(b.Features.Ethernet)
	default:
		i.Incorrect()
	}
}

// readControlPlane reads the CP F-SEID. Of two addresses it takes the one of
// the family that the request came by.
func readControlPlane(b *Builder, i wire.IE, _ *session.Session) {
	seid, v4, v6 := i.FSEID()
	if !i.OK() {
		return
	}
	addr := v4
	if !v4.IsValid() || (v6.IsValid() && b.Prefer6) {
		addr = v6
	}
	if seid == 0 || addr.IsUnspecified() || addr.IsMulticast() {
		i.Incorrect()
		return
	}
	b.To.CPSEID, b.To.CPAddr = seid, addr
}

// Flags of PFCPSMReq-Flags (TS 29.244 section 8.2.28).
const (
	flagDROBU = 1 << 0
	flagSNDEM = 1 << 1
	flagQAURR = 1 << 2
)

func readModificationFlags(b *Builder, i wire.IE, _ *session.Session) {
	flags := i.U8()
	b.How.DropBuffered = flags&flagDROBU != 0
	b.How.QueryAll = flags&flagQAURR != 0
	if flags&^(flagDROBU|flagSNDEM|flagQAURR) != 0 { // paused charging, among others
		i.Unsupported()
	}
}

// readQuery reads a Query URR: one URR or several. An unknown URR fails the
// request, as an update of it would. One that the request removes is reported as it goes.
func readQuery(b *Builder, i wire.IE, _ *session.Session) {
	found := false
	for i := range i.Each() {
		if i.Type() != ie.URRID {
			continue
		}
		found = true
		id := i.U32()
		if b.To.URR(id) == nil {
			if !slices.Contains(b.removed, removed{session.RuleURR, id}) {
				i.Fail(wire.FailedRule(session.RuleURR, id, errUnknown))
			}
			continue
		}
		b.How.QueryURRs = append(b.How.QueryURRs, id)
	}
	if !found {
		i.Fail(wire.Missing(ie.URRID))
	}
}

var errDangling = errors.New("it refers to a rule that does not exist")

// References checks that each rule that another one names exists.
func (b *Builder) References() {
	s := b.To
	check := func(ok bool, kind session.RuleKind, id uint32) {
		if !ok {
			b.Fail(wire.FailedRule(kind, id, errDangling))
		}
	}
	for i := range s.PDRs {
		p := &s.PDRs[i]
		ok := s.FAR(p.FAR) != nil
		for _, id := range p.QERs {
			ok = ok && s.QER(id) != nil
		}
		for _, id := range p.URRs {
			ok = ok && s.URR(id) != nil
		}
		check(ok, session.RulePDR, uint32(p.ID))
	}
	for i := range s.FARs {
		f := &s.FARs[i]
		check(f.BAR == nil || s.BAR(*f.BAR) != nil, session.RuleFAR, f.ID)
	}
	for i := range s.URRs {
		u := &s.URRs[i]
		check(u.FARForQuotaAction == nil || s.FAR(*u.FARForQuotaAction) != nil, session.RuleURR, u.ID)
	}
}
