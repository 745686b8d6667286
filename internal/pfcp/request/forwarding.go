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
	{ie.ApplyAction, mandatory, func(x in, f *session.FAR) { f.Action = readAction(x) }, nil},
	{ie.ForwardingParameters, 0, func(x in, f *session.FAR) { f.Forwarding = readForwarding(x, f.Forwarding, x.u, f.ID) },
		func(f *session.FAR) { f.Forwarding = nil }},
	{ie.DuplicatingParameters, list, func(x in, f *session.FAR) {
		f.Duplicates = append(f.Duplicates, *readForwarding(x, nil, create, f.ID))
	}, func(f *session.FAR) { f.Duplicates = nil }},
	{ie.BARID, 0, func(x in, f *session.FAR) { f.BAR = new(x.U8()) }, func(f *session.FAR) { f.BAR = nil }},
	{ie.RedundantTransmissionForwardingParameters, 0, nil, nil},
}...)

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
func readAction(x in) session.Action {
	a := session.Action(x.U8())
	if len(x.Value) > 1 {
		a |= session.Action(x.Value[1]) << 8
	}
	const known = session.Drop | session.Forward | session.Buffer | session.Notify | session.Duplicate
	switch what := a & (session.Drop | session.Forward | session.Buffer); {
	case a&^known != 0:
		x.Unsupported()
	case what != session.Drop && what != session.Forward && what != session.Buffer:
		x.Incorrect()
	case a&session.Notify != 0 && what != session.Buffer:
		x.Incorrect()
	case a&session.Duplicate != 0:
		x.feature(x.b.Features.Duplication)
	}
	return a
}

// toForwarding are Forwarding or Duplicating Parameters, and their FAR.
type toForwarding struct {
	*session.Forwarding
	far uint32
}

// readForwarding reads Forwarding or Duplicating Parameters into a copy of the
// old ones.
func readForwarding(x in, old *session.Forwarding, u update, far uint32) *session.Forwarding {
	f := &session.Forwarding{}
	if u == changes && old != nil {
		*f = *old
	}
	s := forwardingIEs.read(x.b, toForwarding{f, far}, x.Value, u)
	if u == changes && old == nil {
		forwardingIEs.complete(x.b, s)
	}
	return f
}

var forwardingIEs = newGroup(nil, []row[toForwarding]{
	{ie.DestinationInterface, mandatory, func(x in, f toForwarding) { f.Destination = readDestination(x) }, nil},
	{ie.NetworkInstance, 0, func(x in, f toForwarding) { f.NetworkInstance = x.Name() }, nil},
	{ie.TGPPInterfaceType, 0, func(x in, f toForwarding) { f.InterfaceType = new(session.InterfaceType(x.U8() & 0x3f)) },
		func(f toForwarding) { f.InterfaceType = nil }},
	{ie.OuterHeaderCreation, 0, func(x in, f toForwarding) { f.Outer = x.OuterHeader() },
		func(f toForwarding) { f.Outer = nil }},
	{ie.TransportLevelMarking, 0, func(x in, f toForwarding) {
		if x.Need(2) {
			f.ToS, f.ToSMask = x.Value[0], x.Value[1]
		}
	}, func(f toForwarding) { f.ToS, f.ToSMask = 0, 0 }},
	{ie.PFCPSMReqFlags, 0, func(x in, f toForwarding) {
		if x.U8()&flagSNDEM != 0 && x.feature(x.b.Features.EndMarkers) {
			x.b.How.EndMarkers = append(x.b.How.EndMarkers, f.far)
		}
	}, nil},
	{ie.ForwardingPolicy, removable, func(x in, _ toForwarding) {
		x.Fail(&wire.Refusal{Cause: ie.CauseInvalidForwardingPolicy, Offending: x.Type})
	}, nil},
	{ie.RedirectInformation, removable, nil, nil},
	{ie.HeaderEnrichment, removable, nil, nil},
	{ie.TrafficEndpointID, removable, nil, nil},
	{ie.Proxying, removable, nil, nil},
	{ie.IPMulticastAddressingInfo, removable, nil, nil},
	{ie.DataNetworkAccessIdentifier, removable, nil, nil},
}...)

func readDestination(x in) session.Interface {
	i := x.U8() & 0x0f
	switch {
	case i == 5: // 5G VN Internal
		x.Unsupported()
	case i > 5:
		x.Incorrect()
	}
	return session.Interface(i)
}
