package traffic

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
)

// expected is what comes out for what is sent, as a template in which all that
// may be anything is not given.
func expected(sent Template, expect *Template) (Template, error) {
	e := sent
	e.Ethernet, e.Outer.HopLimit, e.Inner.HopLimit = Ethernet{}, 0, 0
	// What the default is when it is sent is not anything when it comes out.
	e.Outer.TrafficClass, e.Outer.FlowLabel = cmp.Or(e.Outer.TrafficClass, new(uint8)), cmp.Or(e.Outer.FlowLabel, new(uint32))
	e.Inner.TrafficClass, e.Inner.FlowLabel = cmp.Or(e.Inner.TrafficClass, new(uint8)), cmp.Or(e.Inner.FlowLabel, new(uint32))
	if e.Outer.Kind == GTPU {
		e.Outer.SourcePort = cmp.Or(e.Outer.SourcePort, gtpuPort)
	}
	if expect != nil {
		e.Ethernet, e.Outer, e.TEIDs, e.Sources = expect.Ethernet, expect.Outer, expect.TEIDs, expect.Sources
	}
	if expect != nil && expect.Inner.Source.IsValid() {
		e.Inner, e.UEs = expect.Inner, expect.UEs
		e.Inner.NoChecksum = expect.Inner.NoChecksum || sent.Inner.NoChecksum
	}
	e.Size, e.Payload, e.IMIX, e.Flows, e.Order = 0, 0, false, sent.Flows, sent.Order
	f := e.faults()
	for field, counts := range map[string][2]int{"teids": {e.TEIDs, sent.sessions()}, "ues": {e.UEs, sent.sessions()}, "sources": {e.Sources, sent.Sources}} {
		f.want(counts[0] <= 1 || counts[0] == counts[1],
			field, "the same number as in what is sent", "%d are expected, %d are sent", counts[0], counts[1])
	}
	if len(f) > 0 {
		return e, fmt.Errorf("what is expected: %w", config.Errors(f))
	}
	return e, nil
}

// sessions is how many TEIDs or UEs there are.
func (t Template) sessions() int { return max(t.TEIDs, t.UEs, 1) }

// job makes a trial's tables of what is sent and what is expected of it.
func (t Template) job(expect *Template, seed uint64) (trafficrun.Job, error) {
	e, err := expected(t, expect)
	if err != nil {
		return trafficrun.Job{}, err
	}
	j := trafficrun.Job{Slots: t.slots()}
	sizes := t.sizes()
	for _, size := range sizes {
		f := t.build(size)
		j.Frames, j.Places = append(j.Frames, f.data), f.places
		j.Expect.Lengths = append(j.Expect.Lengths, e.headers()+len(f.data)-f.headers)
	}
	out := e.build(j.Expect.Lengths[0] + lenFCS)
	if out.headers > trafficrun.MaxHeaders || len(out.places) > trafficrun.MaxPlaces {
		return j, fmt.Errorf("what is expected has %d octets of headers with %d numbers, more than %d with %d: take fewer segments",
			out.headers, len(out.places), trafficrun.MaxHeaders, trafficrun.MaxPlaces)
	}
	j.Expect.Want, j.Expect.Mask, j.Expect.Places = out.data[:out.headers], out.mask[:out.headers], out.places
	// The key with the most numbers names the stream, so that a flow's packets are in one
	// stream.
	lead := &j.Keys[0]
	for i, count := range []int{keySession: t.sessions(), keySource: max(1, t.Sources), keyFlow: max(1, t.Flows)} {
		j.Keys[i] = trafficrun.Key{Count: uint32(count), Random: t.Order == Random, Salt: uint32(seed>>(8*i)) ^ uint32(i)*0x9e3779b9}
		if j.Keys[i].Count > lead.Count {
			lead = &j.Keys[i]
		}
	}
	lead.Lead = true
	j.StreamBits = bits.Len32(min(trafficrun.Streams, lead.Count)) - 1
	return j, nil
}
