package pfcp

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// The tests' own encoder, which also writes what should not be.

// raw is an IE with its true length.
func raw(t uint16, value ...byte) []byte { return rawLength(t, len(value), value...) }

// rawLength is an IE whose length field says something else.
func rawLength(t uint16, length int, value ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, t)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	return append(b, value...)
}

func group(t uint16, parts ...[]byte) []byte { return raw(t, join(parts...)...) }

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func u16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
func u32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// rawMessage is one about a session, or, with seid nil, about the node.
func rawMessage(msgType uint8, seid *uint64, seq uint32, parts ...[]byte) []byte {
	h := wire.Header{Sequence: seq}
	if seid != nil {
		h.HasSEID, h.SEID = true, *seid
	}
	b := wire.AppendMessage(nil, msgType, h)
	b = append(b, join(parts...)...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return b
}

// answered is what an answer says of a refusal.
type answered struct {
	cause     uint8
	offending uint16
}

// refusal reads the Cause and the Offending IE of an answer.
func refusal(t testing.TB, b []byte) (a answered) {
	t.Helper()
	h, body, rest, err := wire.ReadHeader(b)
	if err != nil || len(rest) > 0 {
		t.Fatalf("answered %x: %v", b, err)
	}
	if h.Type == message.MsgTypeHeartbeatResponse {
		return a
	}
	var d wire.Decoder
	for i := range d.Each(body) {
		switch i.Type() {
		case ie.Cause:
			a.cause = i.U8()
		case ie.OffendingIE:
			a.offending = i.U16()
		}
	}
	if d.Err != nil {
		t.Fatalf("answered %x: %v", b, d.Err)
	}
	return a
}

// Parts of sound requests.
var (
	rPDRID      = raw(ie.PDRID, 0, 1)
	rPrecedence = raw(ie.Precedence, u32(1)...)
	rSource     = raw(ie.SourceInterface, 0)
	rPDI        = group(ie.PDI, rSource)
	rFARID      = raw(ie.FARID, u32(1)...)
	rAction     = raw(ie.ApplyAction, 1)
	rFAR        = group(ie.CreateFAR, rFARID, rAction)
	rGate       = raw(ie.GateStatus, 0)
	rURR        = join(raw(ie.URRID, u32(1)...), raw(ie.MeasurementMethod, 2), raw(ie.ReportingTriggers, 2, 0))
)

func rPDR(parts ...[]byte) []byte { return group(ie.CreatePDR, parts...) }
func withPDI(parts ...[]byte) []byte {
	return rPDR(rPDRID, rPrecedence, group(ie.PDI, append([][]byte{rSource}, parts...)...), rFARID)
}

var soundPDR = rPDR(rPDRID, rPrecedence, rPDI, rFARID)

func forwarding(parts ...[]byte) []byte {
	return group(ie.CreateFAR, rFARID, raw(ie.ApplyAction, 2),
		group(ie.ForwardingParameters, append([][]byte{raw(ie.DestinationInterface, 0)}, parts...)...))
}
func qer(parts ...[]byte) []byte {
	return group(ie.CreateQER, append([][]byte{raw(ie.QERID, u32(1)...), rGate}, parts...)...)
}
func urr(parts ...[]byte) []byte {
	return group(ie.CreateURR, append([][]byte{rURR}, parts...)...)
}

// TestHardeningEstablishment: one fault in an establishment that is sound
// otherwise. Nothing is installed, and the next one succeeds.
func TestHardeningEstablishment(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	node := marshalIE(m.node())
	cp := marshalIE(m.cpFSEID(1))
	with := func(parts ...[]byte) []byte { return join(append([][]byte{node, cp}, parts...)...) }
	const (
		noIE    = ie.CauseMandatoryIEMissing
		length  = ie.CauseInvalidLength
		wrong   = ie.CauseMandatoryIEIncorrect
		failure = ie.CauseRuleCreationModificationFailure
		service = ie.CauseServiceNotSupported
	)
	sdf := func(value ...byte) []byte { return with(withPDI(raw(ie.SDFFilter, value...)), rFAR) }
	flow := func(text string) []byte {
		return sdf(append(append([]byte{1, 0}, u16(uint16(len(text)))...), text...)...)
	}
	for name, c := range map[string]struct {
		body []byte
		want answered
	}{
		"empty":                            {nil, answered{noIE, ie.NodeID}},
		"no Node ID":                       {join(cp, soundPDR, rFAR), answered{ie.CauseNoEstablishedPFCPAssociation, 0}},
		"no F-SEID":                        {join(node, soundPDR, rFAR), answered{noIE, ie.FSEID}},
		"no PDR":                           {with(rFAR), answered{noIE, ie.CreatePDR}},
		"no FAR":                           {with(soundPDR), answered{noIE, ie.CreateFAR}},
		"PDR without PDR ID":               {with(rPDR(rPrecedence, rPDI, rFARID), rFAR), answered{noIE, ie.PDRID}},
		"PDR without Precedence":           {with(rPDR(rPDRID, rPDI, rFARID), rFAR), answered{noIE, ie.Precedence}},
		"PDR without PDI":                  {with(rPDR(rPDRID, rPrecedence, rFARID), rFAR), answered{noIE, ie.PDI}},
		"PDR without FAR ID":               {with(rPDR(rPDRID, rPrecedence, rPDI), rFAR), answered{noIE, ie.FARID}},
		"PDR empty":                        {with(rPDR(), rFAR), answered{noIE, ie.PDRID}},
		"PDI without Source Interface":     {with(rPDR(rPDRID, rPrecedence, group(ie.PDI), rFARID), rFAR), answered{noIE, ie.SourceInterface}},
		"FAR without FAR ID":               {with(soundPDR, group(ie.CreateFAR, rAction)), answered{noIE, ie.FARID}},
		"FAR without Apply Action":         {with(soundPDR, group(ie.CreateFAR, rFARID)), answered{noIE, ie.ApplyAction}},
		"FORW without parameters":          {with(soundPDR, group(ie.CreateFAR, rFARID, raw(ie.ApplyAction, 2))), answered{ie.CauseConditionalIEMissing, ie.ForwardingParameters}},
		"forwarding without a destination": {with(soundPDR, group(ie.CreateFAR, rFARID, raw(ie.ApplyAction, 2), group(ie.ForwardingParameters))), answered{noIE, ie.DestinationInterface}},
		"QER without QER ID":               {with(soundPDR, rFAR, group(ie.CreateQER, rGate)), answered{noIE, ie.QERID}},
		"QER without Gate Status":          {with(soundPDR, rFAR, group(ie.CreateQER, raw(ie.QERID, u32(1)...))), answered{noIE, ie.GateStatus}},
		"URR without a method":             {with(soundPDR, rFAR, group(ie.CreateURR, raw(ie.URRID, u32(1)...), raw(ie.ReportingTriggers, 2, 0))), answered{noIE, ie.MeasurementMethod}},
		"URR without triggers":             {with(soundPDR, rFAR, group(ie.CreateURR, raw(ie.URRID, u32(1)...), raw(ie.MeasurementMethod, 2))), answered{noIE, ie.ReportingTriggers}},
		"BAR without BAR ID":               {with(soundPDR, rFAR, group(ie.CreateBAR)), answered{noIE, ie.BARID}},

		"Node ID of nothing":            {join(raw(ie.NodeID), cp, soundPDR, rFAR), answered{length, ie.NodeID}},
		"F-SEID short":                  {join(node, raw(ie.FSEID, make([]byte, 8)...), soundPDR, rFAR), answered{length, ie.FSEID}},
		"F-SEID without its IPv6":       {join(node, raw(ie.FSEID, append([]byte{1}, make([]byte, 12)...)...), soundPDR, rFAR), answered{length, ie.FSEID}},
		"F-TEID of nothing":             {with(withPDI(raw(ie.FTEID)), rFAR), answered{length, ie.FTEID}},
		"F-TEID short":                  {with(withPDI(raw(ie.FTEID, 1, 0, 0, 0, 1)), rFAR), answered{length, ie.FTEID}},
		"F-TEID without its CHOOSE ID":  {with(withPDI(raw(ie.FTEID, 0x0d)), rFAR), answered{length, ie.FTEID}},
		"UE address short":              {with(withPDI(raw(ie.UEIPAddress, 2, 10)), rFAR), answered{length, ie.UEIPAddress}},
		"UE address of nothing":         {with(withPDI(raw(ie.UEIPAddress)), rFAR), answered{length, ie.UEIPAddress}},
		"Apply Action empty":            {with(soundPDR, group(ie.CreateFAR, rFARID, raw(ie.ApplyAction))), answered{length, ie.ApplyAction}},
		"Outer Header Creation empty":   {with(soundPDR, forwarding(raw(ie.OuterHeaderCreation))), answered{length, ie.OuterHeaderCreation}},
		"Outer Header Creation short":   {with(soundPDR, forwarding(raw(ie.OuterHeaderCreation, 1, 0, 0, 0))), answered{length, ie.OuterHeaderCreation}},
		"Outer Header without IPv4":     {with(soundPDR, forwarding(raw(ie.OuterHeaderCreation, 1, 0, 0, 0, 0, 1))), answered{length, ie.OuterHeaderCreation}},
		"MBR short":                     {with(soundPDR, rFAR, qer(raw(ie.MBR, make([]byte, 9)...))), answered{length, ie.MBR}},
		"drop threshold short":          {with(soundPDR, rFAR, urr(raw(ie.DroppedDLTrafficThreshold, 3, 0))), answered{length, ie.DroppedDLTrafficThreshold}},
		"volume threshold short":        {with(soundPDR, rFAR, urr(raw(ie.VolumeThreshold, 7, 0, 0))), answered{length, ie.VolumeThreshold}},
		"SDF filter of nothing":         {sdf(), answered{length, ie.SDFFilter}},
		"SDF filter cut short":          {sdf(1, 0, 0, 50, 'p', 'e'), answered{length, ie.SDFFilter}},
		"SDF filter's length cut short": {sdf(1, 0, 0), answered{length, ie.SDFFilter}},
		"a child longer than its parent": {with(rPDR(rPDRID, rPrecedence, raw(ie.PDI, rawLength(ie.SourceInterface, 9, 0)...), rFARID), rFAR),
			answered{length, ie.SourceInterface}},
		"an IE past the message": {with(soundPDR, rFAR, rawLength(ie.PDNType, 200, 1)), answered{length, ie.PDNType}},
		"half of an IE's header": {with(soundPDR, rFAR, []byte{0, 1}), answered{length, 0}},
		"User ID cut short":      {with(soundPDR, rFAR, raw(ie.UserID, 1, 9, 1)), answered{length, ie.UserID}},
		"S-NSSAI short":          {with(soundPDR, rFAR, raw(ie.SNSSAI, 1)), answered{length, ie.SNSSAI}},

		"TEID 0":                     {with(withPDI(raw(ie.FTEID, 1, 0, 0, 0, 0, 10, 0, 0, 1)), rFAR), answered{wrong, ie.FTEID}},
		"F-TEID of no family":        {with(withPDI(raw(ie.FTEID, 0, 0, 0, 0, 1)), rFAR), answered{wrong, ie.FTEID}},
		"outer TEID 0":               {with(soundPDR, forwarding(raw(ie.OuterHeaderCreation, 1, 0, 0, 0, 0, 0, 192, 0, 2, 1))), answered{wrong, ie.OuterHeaderCreation}},
		"CP SEID 0":                  {join(node, raw(ie.FSEID, 2, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1), soundPDR, rFAR), answered{wrong, ie.FSEID}},
		"unknown Source Interface":   {with(rPDR(rPDRID, rPrecedence, group(ie.PDI, raw(ie.SourceInterface, 9)), rFARID), rFAR), answered{wrong, ie.SourceInterface}},
		"unknown destination":        {with(soundPDR, group(ie.CreateFAR, rFARID, raw(ie.ApplyAction, 2), group(ie.ForwardingParameters, raw(ie.DestinationInterface, 12)))), answered{wrong, ie.DestinationInterface}},
		"Apply Action of nothing":    {with(soundPDR, group(ie.CreateFAR, rFARID, raw(ie.ApplyAction, 0))), answered{wrong, ie.ApplyAction}},
		"FORW and DROP":              {with(soundPDR, group(ie.CreateFAR, rFARID, raw(ie.ApplyAction, 3))), answered{wrong, ie.ApplyAction}},
		"NOCP without BUFF":          {with(soundPDR, group(ie.CreateFAR, rFARID, raw(ie.ApplyAction, 9))), answered{wrong, ie.ApplyAction}},
		"a filter of garbage":        {flow("\xff\xfe\x00garbage"), answered{wrong, ie.SDFFilter}},
		"a filter that denies":       {flow("deny out ip from any to any"), answered{wrong, ie.SDFFilter}},
		"a filter without an end":    {flow("permit out ip from any to"), answered{wrong, ie.SDFFilter}},
		"a filter of no part":        {sdf(0, 0), answered{wrong, ie.SDFFilter}},
		"an unknown bidirectional":   {sdf(0x10, 0, 0, 0, 0, 9), answered{wrong, ie.SDFFilter}},
		"PDN type 0":                 {with(soundPDR, rFAR, raw(ie.PDNType, 0)), answered{wrong, ie.PDNType}},
		"UE address of no family":    {with(withPDI(raw(ie.UEIPAddress, 0)), rFAR), answered{wrong, ie.UEIPAddress}},
		"a prefix of 255 bits":       {with(withPDI(raw(ie.UEIPAddress, append(append([]byte{0x41}, make([]byte, 16)...), 255)...)), rFAR), answered{wrong, ie.UEIPAddress}},
		"a framed route to nowhere":  {with(withPDI(raw(ie.FramedRoute, []byte("nowhere")...)), rFAR), answered{wrong, ie.FramedRoute}},
		"an unknown application":     {with(withPDI(raw(ie.ApplicationID, 'x')), rFAR), answered{request.CauseUnknownApplication, ie.ApplicationID}},
		"an unknown predefined rule": {with(rPDR(rPDRID, rPrecedence, rPDI, rFARID, raw(ie.ActivatePredefinedRules, 'x')), rFAR), answered{request.CauseUnknownPredefinedRule, ie.ActivatePredefinedRules}},
		"a forwarding policy":        {with(soundPDR, forwarding(raw(ie.ForwardingPolicy, 1, 'x'))), answered{ie.CauseInvalidForwardingPolicy, ie.ForwardingPolicy}},

		"the same PDR twice":      {with(soundPDR, soundPDR, rFAR), answered{failure, 0}},
		"a FAR that is not there": {with(soundPDR, group(ie.CreateFAR, raw(ie.FARID, u32(2)...), rAction)), answered{failure, 0}},
		"a QER that is not there": {with(rPDR(rPDRID, rPrecedence, rPDI, rFARID, raw(ie.QERID, u32(1)...)), rFAR), answered{failure, 0}},
		"a BAR that is not there": {with(soundPDR, group(ie.CreateFAR, rFARID, rAction, raw(ie.BARID, 1))), answered{failure, 0}},
		"a drop threshold":        {with(soundPDR, rFAR, urr(raw(ie.DroppedDLTrafficThreshold, 0))), answered{service, ie.DroppedDLTrafficThreshold}},
		"multi-access rules":      {with(soundPDR, rFAR, group(ie.CreateMAR)), answered{service, ie.CreateMAR}},
		"redirection":             {with(soundPDR, forwarding(raw(ie.RedirectInformation, 0, 0, 0))), answered{service, ie.RedirectInformation}},
	} {
		t.Run(name, func(t *testing.T) {
			m.t = t
			zero := uint64(0)
			m.sendRaw(rawMessage(message.MsgTypeSessionEstablishmentRequest, &zero, m.next(), c.body))
			answer := m.receiveRaw(patience)
			if answer == nil {
				t.Fatal("no answer")
			}
			if got := refusal(t, answer); got != c.want && !(name == "no Node ID" && got == answered{noIE, ie.NodeID}) {
				t.Errorf("answered %+v, want %+v", got, c.want)
			}
			b.upf.holdsNothing(t)
		})
	}
	m.t = t
	seid, _ := m.establish(1, uplinkPDR, toCore)
	wantCause(t, m.delete(seid).Cause, ie.CauseRequestAccepted)
	if n := b.s.Stats().Events["panic"]; n != 0 {
		t.Errorf("the reader could not bear %d messages", n)
	}
}

// Odd values that are right.
func TestOddButSound(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	node := marshalIE(m.node())
	zero := uint64(0)
	for name, body := range map[string][]byte{
		"SEID of all ones": join(node, marshalIE(m.cpFSEID(1<<64-1)), soundPDR, rFAR),
		"URR ID 65535": join(node, marshalIE(m.cpFSEID(1)), rPDR(rPDRID, rPrecedence, rPDI, rFARID, raw(ie.URRID, u32(65535)...)), rFAR,
			group(ie.CreateURR, raw(ie.URRID, u32(65535)...), raw(ie.MeasurementMethod, 2), raw(ie.ReportingTriggers, 2, 0))),
		"IEs of a vendor and of the future": join(node, marshalIE(m.cpFSEID(1)), soundPDR, rFAR, raw(0x8001, 0, 9, 1), raw(999, 1, 2, 3)),
		"an extended IE":                    join(node, marshalIE(m.cpFSEID(1)), rPDR(raw(ie.PDRID, 0, 1, 7, 7), rPrecedence, rPDI, rFARID), rFAR),
		"any order":                         join(rFAR, rPDR(rFARID, rPDI, rPrecedence, rPDRID), marshalIE(m.cpFSEID(1)), node),
		// Octets behind those that are known belong to a later release (section 8.1.1).
		"an extended F-TEID":                join(node, marshalIE(m.cpFSEID(1)), withPDI(raw(ie.FTEID, 1, 0x7f, 0, 0, 1, 10, 0, 0, 1, 0)), rFAR),
		"an extended F-TEID to be chosen":   join(node, marshalIE(m.cpFSEID(1)), withPDI(raw(ie.FTEID, 5, 7, 7)), rFAR),
		"an extended Outer Header Creation": join(node, marshalIE(m.cpFSEID(1)), soundPDR, forwarding(raw(ie.OuterHeaderCreation, 1, 0, 0, 0, 0, 1, 192, 0, 2, 1, 7, 7))),
		"an extended MBR":                   join(node, marshalIE(m.cpFSEID(1)), soundPDR, rFAR, qer(raw(ie.MBR, make([]byte, 11)...))),
		"an extended SDF Filter":            join(node, marshalIE(m.cpFSEID(1)), withPDI(raw(ie.SDFFilter, 2, 0, 1, 1, 9, 9)), rFAR),
	} {
		m.sendRaw(rawMessage(message.MsgTypeSessionEstablishmentRequest, &zero, m.next(), body))
		if got := refusal(t, m.receiveRaw(patience)); got.cause != ie.CauseRequestAccepted {
			t.Errorf("%s: answered %+v", name, got)
		}
	}
	b.upf.consistent(t)
}

// Headers and node messages that are wrong: an answer where the header can be
// read, and in any case no harm.
func TestHardeningNode(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	node := marshalIE(m.node())
	stamp := raw(ie.RecoveryTimeStamp, u32(1)...)
	zero := uint64(0)
	for _, c := range []struct {
		name string
		data []byte
		want *answered // nil: none
	}{
		{"zero octets", nil, nil},
		{"7 octets", make([]byte, 7), nil},
		{"a SEID cut short", []byte{0x21, 54, 0, 4, 0, 0, 0, 1}, nil},
		{"an unknown type", rawMessage(77, nil, 1), nil},
		{"a response to nothing", rawMessage(message.MsgTypeAssociationSetupResponse, nil, 1, node), nil},
		{"a report request to us", rawMessage(message.MsgTypeSessionReportRequest, &zero, 1), nil},
		{"setup without Node ID", rawMessage(5, nil, 2, stamp), &answered{ie.CauseMandatoryIEMissing, ie.NodeID}},
		{"setup without a stamp", rawMessage(5, nil, 3, node), &answered{ie.CauseMandatoryIEMissing, ie.RecoveryTimeStamp}},
		{"a stamp of length 0", rawMessage(5, nil, 4, node, raw(ie.RecoveryTimeStamp)), &answered{ie.CauseInvalidLength, ie.RecoveryTimeStamp}},
		{"a Node ID of another kind", rawMessage(5, nil, 5, raw(ie.NodeID, 9, 1), stamp), &answered{ie.CauseMandatoryIEIncorrect, ie.NodeID}},
		{"a Node ID without labels", rawMessage(5, nil, 6, raw(ie.NodeID, 2, 9, 'a'), stamp), &answered{ie.CauseMandatoryIEIncorrect, ie.NodeID}},
		{"a length past the datagram", func() []byte {
			b := rawMessage(5, nil, 7, node, stamp)
			b[3] += 9
			return b
		}(), &answered{ie.CauseInvalidLength, 0}},
		{"a heartbeat of header length 0", []byte{0x20, 1, 0, 0, 0, 0, 17, 0, 0, 96, 0, 4, 0, 0, 0, 1}, nil},
		{"a heartbeat past the datagram", []byte{0x20, 1, 0, 99, 0, 0, 18, 0, 0, 96, 0, 4, 0, 0, 0, 1}, nil},
		{"a heartbeat without a stamp", rawMessage(1, nil, 8), &answered{}},
		{"a heartbeat's stamp of length 0", rawMessage(1, nil, 9, raw(ie.RecoveryTimeStamp)), &answered{}},
		{"release by nobody", rawMessage(9, nil, 10, node), &answered{ie.CauseNoEstablishedPFCPAssociation, 0}},
		{"release without anything", rawMessage(9, nil, 11), &answered{ie.CauseMandatoryIEMissing, ie.NodeID}},
		{"update of nothing", rawMessage(7, nil, 12, node), &answered{ie.CauseNoEstablishedPFCPAssociation, 0}},
		{"PFDs of nobody", rawMessage(3, nil, 13), &answered{ie.CauseNoEstablishedPFCPAssociation, 0}},
		{"a session set", rawMessage(14, nil, 14, node), &answered{ie.CauseServiceNotSupported, 0}},
		{"deletion without anything", rawMessage(54, nil, 15), &answered{ie.CauseNoEstablishedPFCPAssociation, 0}},
		{"deletion of all ones", rawMessage(54, ptr(^uint64(0)), 16), &answered{ie.CauseNoEstablishedPFCPAssociation, 0}},
	} {
		m.sendRaw(c.data)
		wait := patience
		if c.want == nil {
			wait = silence
		}
		answer := m.receiveRaw(wait)
		if (answer == nil) != (c.want == nil) {
			t.Errorf("%s: answered %x", c.name, answer)
		} else if answer != nil && refusal(t, answer) != *c.want {
			t.Errorf("%s: answered %+v, want %+v", c.name, refusal(t, answer), *c.want)
		}
	}
	if n := len(b.s.Associations()); n != 0 {
		t.Errorf("%d associations", n)
	}
	if n := b.s.Stats().Events["malformed"]; n != 9 { // five of the first six, and the four heartbeats
		t.Errorf("%d messages are counted as malformed", n)
	}
	// Another version is answered with what we speak.
	m.sendRaw([]byte{0x40, 50, 0, 4, 0, 0, 9, 0})
	if answer := m.receive(patience); answer == nil || answer.MessageType() != message.MsgTypeVersionNotSupportedResponse || answer.Sequence() != 9 {
		t.Errorf("version 2 answered by %v", answer)
	}
	m.associate()
	for name, c := range map[string]struct {
		data []byte
		want answered
	}{
		"deletion without anything": {rawMessage(54, nil, 115), answered{ie.CauseSessionContextNotFound, 0}},
		"deletion of all ones":      {rawMessage(54, ptr(^uint64(0)), 116), answered{ie.CauseSessionContextNotFound, 0}},
		"modification of nothing":   {rawMessage(52, ptr[uint64](7), 117), answered{ie.CauseSessionContextNotFound, 0}},
	} {
		m.sendRaw(c.data)
		if got := refusal(t, m.receiveRaw(patience)); got != c.want {
			t.Errorf("%s: answered %+v, want %+v", name, got, c.want)
		}
	}
	if n := b.s.Stats().Events["panic"]; n != 0 {
		t.Errorf("the reader could not bear %d messages", n)
	}
}

// Large requests are answered too: over 1500 octets, and with more rules than a
// UPF takes; where it says that it has no room, earlier sessions stay.
func TestLarge(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	many := func(n int) []*ie.IE {
		list := []*ie.IE{toCore}
		for i := range n {
			list = append(list, ie.NewCreatePDR(ie.NewPDRID(uint16(i+1)), ie.NewPrecedence(1), ie.NewPDI(ie.NewSourceInterface(0), choose(),
				ie.NewSDFFilter("permit out ip from 192.0.2.1 to assigned", "", "", "", 0)), ie.NewFARID(1)))
		}
		return list
	}
	first, answer := m.establish(1, many(500)...)
	if len(answer.CreatedPDR) != 500 {
		t.Errorf("%d created PDRs", len(answer.CreatedPDR))
	}
	b.upf.mu.Lock()
	b.upf.poolSize = 600
	b.upf.mu.Unlock()
	wantCause(t, m.tryEstablish(2, many(200)...).Cause, ie.CauseNoResourcesAvailable)
	if b.upf.only(t).SEID != first {
		t.Error("the earlier session went")
	}
	b.upf.consistent(t)
	text := strings.Repeat("x", 9000)
	wantCause(t, m.tryEstablish(2, toCore, ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(1),
		ie.NewPDI(ie.NewSourceInterface(0), ie.NewSDFFilter(text, "", "", "", 0)), ie.NewFARID(1))).Cause, ie.CauseMandatoryIEIncorrect)
}

// Answers that are kept do not grow without bound, nor past their time.
func TestTransactions(t *testing.T) {
	tr := newTransactions()
	now := time.Now()
	answer := make([]byte, 1000)
	for i := range uint64(50_000) {
		tr.keep(i, answer, now)
	}
	if n := cap(tr.young.answers) + cap(tr.old.answers); n > 4*answerBytes {
		t.Errorf("%d octets kept", n)
	}
	for i := range uint64(4 * answerCount) {
		tr.keep(i, nil, now)
	}
	if n := len(tr.young.at) + len(tr.old.at); n > 2*answerCount {
		t.Errorf("%d answers kept", n)
	}
	tr.keep(1<<40, answer, now)
	tr.keep(1<<41, answer, now.Add(answerTime))
	if tr.find(1<<40) == nil || tr.find(1<<41) == nil {
		t.Error("an answer was forgotten before its time")
	}
	tr.keep(1, answer, now.Add(3*answerTime))
	tr.keep(2, answer, now.Add(5*answerTime))
	if tr.find(1<<40) != nil {
		t.Error("an answer was kept past its time")
	}
}
