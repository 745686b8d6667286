package pfcp

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// resources are the TEIDs and UE addresses that a session has, each once.
type resources struct {
	teids []uint32
	ues   []netip.Prefix
}

// resourcesOf returns those of a session; none of nil.
func resourcesOf(s *session.Session) resources {
	if s == nil {
		return resources{}
	}
	return resources{s.TEIDs(), s.UEs()}
}

// without returns what r has and other has not. r is no longer valid.
func (r resources) without(other resources) resources {
	return resources{
		slices.DeleteFunc(r.teids, func(teid uint32) bool { return slices.Contains(other.teids, teid) }),
		slices.DeleteFunc(r.ues, func(ue netip.Prefix) bool { return slices.Contains(other.ues, ue) }),
	}
}

// free gives them back to the user plane.
func (r resources) free(upf UPF) {
	for _, teid := range r.teids {
		upf.FreeTEID(teid)
	}
	if len(r.ues) > 0 {
		upf.FreeUE(r.ues)
	}
}

// allocation takes from the user plane what a session needs.
type allocation struct {
	*request.Builder
	upf UPF
	got resources
	// chosen are the PDRs that the user plane chose something for, in the order
	// of the request.
	chosen []chosen
}

// chosen is what a PDR gets of what the request leaves to us.
type chosen struct {
	*request.Want
	pdr  *session.PDR
	teid bool
	ues  []netip.Prefix
}

// allocate takes the TEIDs and UE addresses of the session in b: those that the
// SMF names, and those that it leaves to us; had is what the old session has. On
// an error, in b.Err, it gives all of them back.
func allocate(b *request.Builder, upf UPF, had resources) *allocation {
	a := &allocation{Builder: b, upf: upf, chosen: make([]chosen, 0, len(b.Wants))}
	a.named(resourcesOf(b.To).without(had))
	for i := range b.Wants {
		w := &b.Wants[i]
		if pdr := b.To.PDR(w.PDR); pdr != nil && b.Err == nil {
			c := chosen{Want: w, pdr: pdr, teid: w.FTEID.Choose}
			if c.teid {
				a.chooseTEID(&pdr.PDI, &w.FTEID)
			}
			a.chosen = append(a.chosen, c)
		}
	}
	a.chooseUEs()
	if b.Err != nil {
		a.got.free(upf)
		a.got = resources{}
	}
	return a
}

// named takes what the SMF chose.
func (a *allocation) named(r resources) {
	for _, teid := range r.teids {
		if err := a.upf.TakeTEID(teid); err != nil {
			a.failPDR(func(p *session.PDI) bool { return p.TEID == teid }, err)
			return
		}
		a.got.teids = append(a.got.teids, teid)
	}
	if len(r.ues) == 0 || a.Err != nil {
		return
	}
	if err := a.upf.TakeUE(r.ues); err != nil {
		a.failPDR(func(p *session.PDI) bool { return slices.Contains(p.UE, r.ues[0]) }, err)
		return
	}
	a.got.ues = append(a.got.ues, r.ues...)
}

// failPDR refuses the first PDR whose PDI is meant.
func (a *allocation) failPDR(meant func(*session.PDI) bool, err error) {
	id := uint16(0)
	for i := range a.To.PDRs {
		if p := &a.To.PDRs[i]; meant(&p.PDI) {
			id = p.ID
			break
		}
	}
	a.Fail(refusalOf(&session.RuleError{Kind: session.RulePDR, ID: uint32(id), Err: err}))
}

// chooseTEID gives a PDI an F-TEID. PDIs that share one, of this request or an earlier
// one, get the same.
func (a *allocation) chooseTEID(pdi *session.PDI, f *wire.FTEID) {
	for i := range a.To.PDRs {
		other := &a.To.PDRs[i].PDI
		if request.SharesTEID(pdi, f, other) {
			pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = other.TEID, other.TEID4, other.TEID6, other.ChooseID
			return
		}
	}
	v4, v6 := a.upf.GTPUAddresses(pdi.Source, pdi.NetworkInstance)
	if f.Wants4 {
		pdi.TEID4 = v4
	}
	if f.Wants6 {
		pdi.TEID6 = v6
	}
	if !pdi.TEID4.IsValid() && !pdi.TEID6.IsValid() {
		a.Fail(&wire.Refusal{Cause: ie.CauseInvalidFTEIDAllocationOption, Offending: ie.FTEID})
		return
	}
	teid, err := a.upf.NewTEID()
	if err != nil {
		a.failPDR(func(p *session.PDI) bool { return p == pdi }, err)
		return
	}
	a.got.teids = append(a.got.teids, teid)
	pdi.TEID, pdi.ChooseID = teid, f.ChooseID
}

// chooseUEs gives UE addresses to PDRs that ask for one. A session has one of
// each family.
func (a *allocation) chooseUEs() {
	var need4, need6 bool
	instance := ""
	for _, c := range a.chosen {
		need4, need6 = need4 || c.Choose4, need6 || c.Choose6
		if instance == "" && (c.Choose4 || c.Choose6) {
			instance = c.pdr.PDI.NetworkInstance
		}
	}
	if a.Err != nil || (!need4 && !need6) {
		return
	}
	if !a.Features.UEAddresses {
		a.Fail(wire.Unsupported(ie.UEIPAddress))
		return
	}
	var v4, v6 netip.Prefix
	assign := func(ues []netip.Prefix) {
		for _, ue := range ues {
			if ue.Addr().Is4() && ue.Bits() == 32 {
				v4 = ue
			} else if ue.Addr().Is6() {
				v6 = ue
			}
		}
	}
	assign(a.To.UEs())
	need4, need6 = need4 && !v4.IsValid(), need6 && !v6.IsValid()
	if need4 || need6 {
		ues, err := a.upf.NewUE(instance, need4, need6)
		if err != nil {
			a.Fail(refusalOf(err))
			return
		}
		a.got.ues = append(a.got.ues, ues...)
		assign(ues)
	}
	for i := range a.chosen {
		c := &a.chosen[i]
		if c.Choose4 {
			c.ues = append(c.ues, v4)
		}
		if c.Choose6 {
			c.ues = append(c.ues, v6)
		}
		c.pdr.PDI.UE = append(c.pdr.PDI.UE, c.ues...)
	}
}

// ies returns what the answer says of what we chose.
func (a *allocation) ies() []*ie.IE {
	var list []*ie.IE
	for _, c := range a.chosen {
		parts := []*ie.IE{ie.NewPDRID(c.PDR)}
		if c.teid {
			parts = append(parts, wire.NewFTEID(&c.pdr.PDI))
		}
		if len(c.ues) > 0 {
			parts = append(parts, wire.NewUEAddress(c.ues))
		}
		if c.Created {
			list = append(list, ie.NewCreatedPDR(parts...))
		} else {
			list = append(list, ie.NewUpdatedPDR(parts...))
		}
	}
	return list
}

// refusalOf returns the answer to an error of the user plane.
func refusalOf(err error) *wire.Refusal {
	r := &wire.Refusal{Cause: ie.CauseSystemFailure, Err: err}
	switch {
	case errors.Is(err, ErrNoResources):
		r.Cause = ie.CauseNoResourcesAvailable
	case errors.Is(err, ErrTaken), errors.Is(err, ErrClosed):
		r.Cause = ie.CauseRuleCreationModificationFailure
	case errors.Is(err, ErrUnsupported):
		r.Cause = ie.CauseServiceNotSupported
	}
	r.Rule, _ = errors.AsType[*session.RuleError](err)
	return r
}
