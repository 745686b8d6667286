package pfcp

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// level is where an odd IE is put: among the IEs of base, which wrap makes a whole
// body of.
type level struct {
	name    string
	msgType uint8
	base    [][]byte
	wrap    func(parts []byte) []byte
}

func whole(parts []byte) []byte { return parts }

// within is a level in a group, which has base, beside the IEs of a sound body.
func within(msgType uint8, ieType uint16, beside []byte, base ...[]byte) level {
	return level{fmt.Sprintf("%s, in IE %d", messageName(msgType), ieType), msgType, base,
		func(parts []byte) []byte { return join(beside, raw(ieType, parts...)) }}
}

// deeper is a level in a group of another level.
func (l level) deeper(ieType uint16, base ...[]byte) level {
	return level{fmt.Sprintf("%s, in IE %d", l.name, ieType), l.msgType, base,
		func(parts []byte) []byte { return l.wrap(join(join(l.base...), raw(ieType, parts...))) }}
}

// levels are all places where the server reads IEs, but those in its own answers.
func levels(node, cp []byte) (list []level) {
	const (
		establish = message.MsgTypeSessionEstablishmentRequest
		modify    = message.MsgTypeSessionModificationRequest
		setup     = message.MsgTypeAssociationSetupRequest
		pfds      = message.MsgTypePFDManagementRequest
	)
	sound := [][]byte{node, cp, soundPDR, rFAR, qer(), urr(), group(ie.CreateBAR, raw(ie.BARID, 1))}
	stamp := raw(ie.RecoveryTimeStamp, u32(1)...)
	for msgType, base := range map[uint8][][]byte{
		establish: sound, modify: nil, message.MsgTypeSessionDeletionRequest: nil,
		setup: {node, stamp}, message.MsgTypeAssociationUpdateRequest: {node}, message.MsgTypeAssociationReleaseRequest: {node},
		message.MsgTypeHeartbeatRequest: {stamp}, pfds: {node}, message.MsgTypeSessionSetDeletionRequest: {node},
	} {
		list = append(list, level{messageName(msgType), msgType, base, whole})
	}
	for msgType, beside := range map[uint8][]byte{establish: join(sound...), modify: nil} {
		id := func(t uint16) []byte { return raw(t, u32(2)...) }
		pdr := within(msgType, ie.CreatePDR, beside, raw(ie.PDRID, 0, 2), rPrecedence, rFARID)
		far := within(msgType, ie.CreateFAR, beside, id(ie.FARID), raw(ie.ApplyAction, 2))
		list = append(list, pdr, pdr.deeper(ie.PDI, rSource), pdr.deeper(ie.PDI, rSource).deeper(ie.EthernetPacketFilter),
			far, far.deeper(ie.ForwardingParameters, raw(ie.DestinationInterface, 1)),
			far.deeper(ie.DuplicatingParameters, raw(ie.DestinationInterface, 1)),
			within(msgType, ie.CreateQER, beside, id(ie.QERID), rGate),
			within(msgType, ie.CreateURR, beside, id(ie.URRID), raw(ie.MeasurementMethod, 2), raw(ie.ReportingTriggers, 2, 0)),
			within(msgType, ie.CreateBAR, beside, raw(ie.BARID, 2)))
	}
	pdr := within(modify, ie.UpdatePDR, nil, rPDRID)
	far := within(modify, ie.UpdateFAR, nil, rFARID)
	list = append(list, pdr, pdr.deeper(ie.PDI, rSource), far, far.deeper(ie.UpdateForwardingParameters), far.deeper(ie.UpdateDuplicatingParameters),
		within(modify, ie.UpdateQER, nil, raw(ie.QERID, u32(1)...)), within(modify, ie.UpdateURR, nil, rURRID),
		within(modify, ie.UpdateBARWithinSessionModificationRequest, nil, raw(ie.BARID, 1)), within(modify, ie.QueryURR, nil),
		within(modify, ie.RemovePDR, nil), within(modify, ie.RemoveFAR, nil), within(modify, ie.RemoveQER, nil),
		within(modify, ie.RemoveURR, nil), within(modify, ie.RemoveBAR, nil))
	app := within(pfds, ie.ApplicationIDsPFDs, node, raw(ie.ApplicationID, 'x'))
	list = append(list, app, app.deeper(ie.PFDContext), within(setup, ie.PFCPSessionRetentionInformation, join(node, stamp)))
	slices.SortFunc(list, func(a, b level) int { return strings.Compare(a.name, b.name) })
	return list
}

// regular has a value of each type of IE that the tests send otherwise.
func regular(t *testing.T) map[uint16][]byte {
	values := map[uint16][]byte{}
	var collect func(l wire.IEs)
	collect = func(l wire.IEs) {
		for _, octets := range topIEs(l) {
			var d wire.Decoder
			for i := range d.Each(octets) {
				if len(i.Value()) > len(values[i.Type()]) {
					values[i.Type()] = i.Value()
				}
				collect(i.Value())
			}
		}
	}
	for _, data := range sound(t) {
		_, body, _, _ := wire.ReadHeader(data)
		collect(body)
	}
	for _, c := range optionalIEs() {
		collect(c.in.create(c.ie))
	}
	return values
}

// oddValues are what the test puts into an IE: nothing, too little, flags that
// announce what is not there, and a regular value that is cut or extended.
func oddValues(regular []byte) (list [][]byte) {
	for n := range 4 {
		list = append(list, make([]byte, n), bytes.Repeat([]byte{0xff}, n), bytes.Repeat([]byte{1}, n))
	}
	if n := len(regular); n > 0 {
		list = append(list, regular[:n-1], append(regular[:n:n], 0, 0, 0))
	}
	return list
}

// TestOddIEs: an IE of any type, of 0 to 3 octets, or cut or longer than usual, at any
// level of any request, gets one answer. It panics nobody, and a refusal for its
// length names it.
func TestOddIEs(t *testing.T) {
	st := newStand(t)
	peer := st.peers[0]
	node := marshalIE(ie.NewNodeID(peer.String(), "", ""))
	cp := raw(ie.FSEID, append([]byte{2, 0, 0, 0, 0, 0, 0, 0, 9}, peer.AsSlice()...)...)
	known := regular(t)
	sequence := uint32(100)
	send := func(l level, body []byte) answered {
		seid := uint64(0)
		for seid = range st.look() {
			break
		}
		to := &seid
		if l.msgType < message.MsgTypeSessionEstablishmentRequest {
			to = nil
		}
		sequence++
		st.check(peer, rawMessage(l.msgType, to, sequence, body))
		if t.Failed() {
			t.FailNow()
		}
		return refusal(t, st.tap.sent[0])
	}
	types := []uint16{1 << 15, 1<<15 | 400, 1<<16 - 1} // a vendor's
	for ieType := range uint16(401) {
		types = append(types, ieType)
	}
	setup := level{msgType: message.MsgTypeAssociationSetupRequest}
	begin := level{msgType: message.MsgTypeSessionEstablishmentRequest}
	for _, l := range levels(node, cp) {
		for _, ieType := range types {
			for _, value := range oddValues(known[ieType]) {
				if len(st.s.peers.Load().at(peer)) == 0 {
					send(setup, join(node, raw(ie.RecoveryTimeStamp, u32(uint32(1e9))...)))
				}
				if len(st.upf.sessions) == 0 {
					send(begin, join(node, cp, soundPDR, rFAR, qer(), urr(), group(ie.CreateBAR, raw(ie.BARID, 1))))
				}
				odd := raw(ieType, value...)
				behind := l.wrap(join(append(slices.Clone(l.base), odd)...))
				before := l.wrap(join(append([][]byte{odd}, l.base...)...))
				for _, body := range [][]byte{behind, before} {
					got := send(l, body)
					if got.cause == ie.CauseInvalidLength && (got.offending == 0 || len(value) < 4 && got.offending != ieType) ||
						got.cause == ie.CauseSystemFailure {
						t.Errorf("%s: IE %d of value %x: answered %+v", l.name, ieType, value, got)
					}
				}
				for _, seid := range slices.Collect(maps.Keys(st.look()))[:max(0, len(st.upf.sessions)-1)] {
					sequence++
					st.step(peer, rawMessage(message.MsgTypeSessionDeletionRequest, &seid, sequence))
				}
			}
		}
	}
}
