package replay

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Difference is what the live UPF does otherwise than the capture's.
type Difference struct {
	Frame    int    `json:"frame"` // of the request in the capture
	Message  string `json:"message"`
	Session  int    `json:"session"` // of the capture, from 1; 0: the message is about none
	IE       string `json:"ie"`
	Captured string `json:"captured"`
	Live     string `json:"live"`
	Copies   int    `json:"copies"` // of the session
	// Matters to an SMF. What does not may be another UPF's choice.
	Matters bool `json:"matters"`
}

// comparison collects the differences of one answer.
type comparison struct{ list []Difference }

// want notes a difference that matters.
func (c *comparison) want(name string, captured, live any) {
	if a, b := fmt.Sprint(captured), fmt.Sprint(live); a != b {
		c.list = append(c.list, Difference{IE: name, Captured: a, Live: b, Matters: true})
	}
}

// note notes one that does not.
func (c *comparison) note(name, captured, live string) {
	c.list = append(c.list, Difference{IE: name, Captured: captured, Live: live})
}

// compareAnswer compares the live UPF's answer for a copy with the captured one.
// seid is the one that the copy has as the SMF's.
func compareAnswer(captured, live wire.Header, s *state, seid uint64) []Difference {
	c := &comparison{}
	c.want("message type", captured.Kind, live.Kind)
	if captured.SEID == 0 {
		seid = 0
	}
	if live.SEID != seid {
		c.want("SEID in the header", "the one that the SMF gave", fmt.Sprintf("%#x", live.SEID))
	}
	var was, is wire.Answer
	was.Read(captured.Payload)
	is.Read(live.Payload)
	c.want("IEs", "whole", map[bool]string{true: "whole", false: "cut off"}[is.Whole])
	c.want("Cause", cause(was.Cause), cause(is.Cause))
	c.want("Offending IE", offending(was.Offending), offending(is.Offending))
	if was.Cause != is.Cause {
		return c.list // the rest follows from it
	}
	c.want("UP F-SEID", present(was.SEID != 0), present(is.SEID != 0))
	c.created(&was, &is, captured.Payload, live.Payload, s)
	c.want("usage reports", usage(captured.Payload), usage(live.Payload))
	c.features(find(captured.Payload, ie.UPFunctionFeatures), find(live.Payload, ie.UPFunctionFeatures))
	c.presence(captured.Payload, live.Payload)
	return c.list
}

func present(is bool) string {
	if is {
		return "present"
	}
	return "absent"
}

func cause(n uint8) string {
	if n == 0 {
		return "absent"
	}
	if n == ie.CauseRequestAccepted {
		return "request accepted (1)"
	}
	return fmt.Sprintf("%s (%d)", wire.CauseName(n), n)
}

func offending(kind uint16) string {
	if kind == 0 {
		return "absent"
	}
	return wire.IEName(kind)
}

// created compares the PDRs that the UPFs chose something for.
func (c *comparison) created(was, is *wire.Answer, captured, live []byte, s *state) {
	ids := func(a *wire.Answer) (list []uint16) {
		for _, p := range a.Created {
			list = append(list, p.ID)
		}
		slices.Sort(list)
		return list
	}
	c.want("Created PDR", ids(was), ids(is))
	given, givenLive := createdFTEIDs(captured), createdFTEIDs(live)
	for _, w := range was.Created {
		i := slices.IndexFunc(is.Created, func(p wire.CreatedPDR) bool { return p.ID == w.ID })
		if i < 0 {
			continue
		}
		name := fmt.Sprintf(" of Created PDR %d", w.ID)
		l := is.Created[i]
		c.families("F-TEID"+name, w.Addr4.IsValid(), w.Addr6.IsValid(), l.Addr4.IsValid() && l.TEID != 0, l.Addr6.IsValid() && l.TEID != 0)
		c.families("UE IP Address"+name, w.UE4.IsValid(), w.UE6.IsValid(), l.UE4.IsValid(), l.UE6.IsValid())
		id := [2]byte(binary.BigEndian.AppendUint16(nil, w.ID))
		f, ok := readFTEID(given[id])
		if !ok || givenLive[id] == nil || s == nil {
			continue
		}
		if problem := s.choose(f, givenLive[id]); problem != "" {
			c.list = append(c.list, Difference{IE: "F-TEID" + name, Captured: fmt.Sprintf("%#x", f.teid), Live: problem, Matters: true})
		}
	}
}

// families wants addresses of the captured families. One more is the UPF's choice.
func (c *comparison) families(name string, was4, was6, is4, is6 bool) {
	was, is := familyNames(was4, was6), familyNames(is4, is6)
	switch {
	case was == is:
	case was4 && !is4, was6 && !is6:
		c.want(name, was, is)
	default:
		c.note(name, was, is)
	}
}

func familyNames(v4, v6 bool) string {
	switch {
	case v4 && v6:
		return "IPv4 and IPv6"
	case v4:
		return "IPv4"
	case v6:
		return "IPv6"
	}
	return "absent"
}

// usage says which URRs are reported, and why.
func usage(b []byte) string {
	var list []string
	wire.Each(b, func(kind uint16, value []byte) {
		switch kind {
		case ie.UsageReportWithinSessionDeletionResponse, ie.UsageReportWithinSessionModificationResponse:
			list = append(list, fmt.Sprintf("URR %s for %s", ruleID(find(value, ie.URRID)), strings.Join(wire.Names(find(value, ie.UsageReportTrigger), wire.UsageTriggers), " ")))
		}
	})
	if len(list) == 0 {
		return "absent"
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// features notes UP Function Features that only one of them has.
func (c *comparison) features(was, is []byte) {
	if was == nil || is == nil {
		return
	}
	captured, live := wire.Names(was, wire.UPFeatures), wire.Names(is, wire.UPFeatures)
	has := func(list []string) func(string) bool {
		return func(name string) bool { return slices.Contains(list, name) }
	}
	onlyCaptured := slices.DeleteFunc(slices.Clone(captured), has(live))
	onlyLive := slices.DeleteFunc(slices.Clone(live), has(captured))
	if len(onlyCaptured)+len(onlyLive) > 0 {
		c.note("UP Function Features", strings.Join(onlyCaptured, " "), strings.Join(onlyLive, " "))
	}
}

// optional IEs of answers say something of the UPF itself, and no SMF needs them.
var optional = []uint16{
	ie.UserPlaneIPResourceInformation, ie.LoadControlInformation, ie.OverloadControlInformation, ie.UPFunctionFeatures,
	ie.UEIPAddressPoolInformation, ie.AlternativeSMFIPAddress, ie.SMFSetID,
}

// presence compares which IEs there are. Those that are compared themselves are left
// out.
func (c *comparison) presence(captured, live []byte) {
	kinds := func(b []byte) map[uint16]bool {
		list := map[uint16]bool{}
		wire.Each(b, func(kind uint16, _ []byte) { list[kind] = true })
		for _, kind := range []uint16{
			ie.Cause, ie.OffendingIE, ie.FSEID, ie.CreatedPDR,
			ie.UsageReportWithinSessionDeletionResponse, ie.UsageReportWithinSessionModificationResponse,
		} {
			delete(list, kind)
		}
		return list
	}
	was, is := kinds(captured), kinds(live)
	for _, kind := range slices.Sorted(maps.Keys(was)) {
		if is[kind] {
			continue
		}
		if slices.Contains(optional, kind) {
			c.note(wire.IEName(kind), "present", "absent")
		} else {
			c.want(wire.IEName(kind), "present", "absent")
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(is)) {
		if !was[kind] {
			c.note(wire.IEName(kind), "absent", "present")
		}
	}
}

// compareReport compares what both UPFs reported of a session.
func compareReport(captured, live wire.Header) []Difference {
	c := &comparison{}
	c.want("Report Type", fmt.Sprintf("%x", find(captured.Payload, ie.ReportType)), fmt.Sprintf("%x", find(live.Payload, ie.ReportType)))
	c.want("reported rules", reported(captured.Payload), reported(live.Payload))
	return c.list
}

// reported are the rules that a Session Report Request is about.
func reported(b []byte) string {
	var list []string
	wire.Each(b, func(kind uint16, value []byte) {
		switch kind {
		case ie.DownlinkDataReport:
			list = append(list, "PDR "+ruleID(find(value, ie.PDRID)))
		case ie.UsageReportWithinSessionReportRequest:
			list = append(list, "URR "+ruleID(find(value, ie.URRID)))
		}
	})
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// ruleID is one of 2 or 4 octets.
func ruleID(value []byte) string {
	var id uint32
	for _, octet := range value {
		id = id<<8 | uint32(octet)
	}
	return fmt.Sprint(id)
}

// isReport says whether a request of the UPF's is a Session Report Request.
func isReport(e *Exchange) bool {
	return e.FromUPF && e.Request.Kind == message.MsgTypeSessionReportRequest
}
