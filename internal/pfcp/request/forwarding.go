package request

import (
	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

var farIEs = newGroup(map[uint16]uint16{
	ie.UpdateForwardingParameters:  ie.ForwardingParameters,
	ie.UpdateDuplicatingParameters: ie.DuplicatingParameters,
}, []row[*session.FAR]{
	{ie.ApplyAction, mandatory, func(b *Builder, i wire.IE, f *session.FAR) { f.Action = readAction(b, i) }, nil},
	{ie.ForwardingParameters, 0, func(b *Builder, i wire.IE, f *session.FAR) {
		f.Forwarding = readForwarding(b, i, f.Forwarding, b.update, f.ID)
	},
		func(f *session.FAR) { f.Forwarding = nil }},
	{ie.DuplicatingParameters, list, func(b *Builder, i wire.IE, f *session.FAR) {
		f.Duplicates = append(f.Duplicates, *readForwarding(b, i, nil, create, f.ID))
	}, func(f *session.FAR) { f.Duplicates = nil }},
	{ie.BARID, 0, func(_ *Builder, i wire.IE, f *session.FAR) { f.BAR = new(i.U8()) }, func(f *session.FAR) { f.BAR = nil }},
}, refused[*session.FAR](0, ie.RedundantTransmissionForwardingParameters))

func checkFAR(b *Builder, f *session.FAR, _ update, _ seen) {
	switch {
	case b.Err != nil:
	case f.Action&session.Forward != 0 && f.Forwarding == nil:
		b.Fail(wire.ConditionMissing(ie.ForwardingParameters))
	case f.Action&session.Duplicate != 0 && len(f.Duplicates) == 0:
		b.Fail(wire.ConditionMissing(ie.DuplicatingParameters))
	}
}

// readAction reads an Apply Action: one of DROP, FORW and BUFF, and what may go
// with it.
func readAction(b *Builder, i wire.IE) session.Action {
	a := session.Action(i.U8())
	if len(i.Value()) > 1 {
		a |= session.Action(i.Value()[1]) << 8
	}
	const known = session.Drop | session.Forward | session.Buffer | session.Notify | session.Duplicate
	switch what := a & (session.Drop | session.Forward | session.Buffer); {
	case a&^known != 0:
		i.Unsupported()
	case what != session.Drop && what != session.Forward && what != session.Buffer:
		i.Incorrect()
	case a&session.Notify != 0 && what != session.Buffer:
		i.Incorrect()
	case a&session.Duplicate != 0:
		i.Supported(b.Features.Duplication)
	}
	return a
}

// readForwarding reads Forwarding or Duplicating Parameters into a copy of the
// old ones.
func readForwarding(b *Builder, i wire.IE, old *session.Forwarding, u update, far uint32) *session.Forwarding {
	b.far = far
	f := &session.Forwarding{}
	if u == changes && old != nil {
		*f = *old
	}
	s := forwardingIEs.read(b, f, i.Value(), u)
	if u == create || old == nil {
		forwardingIEs.complete(b, s)
	}
	return f
}

var forwardingIEs = newGroup(nil, []row[*session.Forwarding]{
	{ie.DestinationInterface, mandatory, func(_ *Builder, i wire.IE, f *session.Forwarding) { f.Destination = readInterface(i, 5) }, nil},
	{ie.NetworkInstance, 0, func(_ *Builder, i wire.IE, f *session.Forwarding) { f.NetworkInstance = i.Name() }, nil},
	{ie.TGPPInterfaceType, 0, func(_ *Builder, i wire.IE, f *session.Forwarding) {
		f.InterfaceType = new(session.InterfaceType(i.U8() & 0x3f))
	},
		func(f *session.Forwarding) { f.InterfaceType = nil }},
	// An empty one does not remove it: a FAR that forwarded without it would lose what it gets.
	{ie.OuterHeaderCreation, 0, func(_ *Builder, i wire.IE, f *session.Forwarding) { f.Outer = i.OuterHeader() }, nil},
	{ie.TransportLevelMarking, 0, func(_ *Builder, i wire.IE, f *session.Forwarding) {
		if i.Need(2) {
			f.ToS, f.ToSMask = i.Value()[0], i.Value()[1]
		}
	}, func(f *session.Forwarding) { f.ToS, f.ToSMask = 0, 0 }},
	{ie.PFCPSMReqFlags, 0, func(b *Builder, i wire.IE, f *session.Forwarding) {
		if i.U8()&flagSNDEM != 0 && i.Supported(b.Features.EndMarkers) {
			b.How.EndMarkers = append(b.How.EndMarkers, b.far)
		}
	}, nil},
	{ie.ForwardingPolicy, removable, func(_ *Builder, i wire.IE, _ *session.Forwarding) {
		i.Fail(&wire.Refusal{Cause: ie.CauseInvalidForwardingPolicy, Offending: i.Type()})
	}, nil},
}, refused[*session.Forwarding](removable,
	ie.RedirectInformation, ie.HeaderEnrichment, ie.TrafficEndpointID, ie.Proxying, ie.IPMulticastAddressingInfo,
	ie.DataNetworkAccessIdentifier,
))
