package catalog

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/smf/replay"
	"github.com/culvert-net/culvert/internal/smf/wire"
)

// TestShapesAreThoseOfCores: what is measured as a session of Open5GS or free5GC has the
// rules that these SMFs made, as the captures show them.
func TestShapesAreThoseOfCores(t *testing.T) {
	shapes := map[string]*Sessions{}
	for _, f := range UPFFunctions(64) {
		shapes[f.Name] = f.Sessions
	}
	for name, of := range map[string]struct {
		capture string
		frames  []int // that create the session's rules
	}{
		"open5gs_uplink":        {"open5gs", []int{7}},
		"open5gs_downlink":      {"open5gs-live", []int{193}},
		"open5gs_flow_uplink":   {"open5gs", []int{11, 13}},
		"open5gs_flow_downlink": {"open5gs", []int{11, 13}},
		"free5gc_uplink":        {"free5gc", []int{5}},
		"free5gc_downlink":      {"free5gc", []int{5}},
		// The captures have no UE with IPv6 alone. Open5GS' sessions with IPv4 and IPv6 have the same rules.
		"open5gs_ipv6_uplink":   {"open5gs-live", []int{147}},
		"open5gs_ipv6_downlink": {"open5gs-live", []int{201}},
		"free5gc_ipv6_uplink":   {"free5gc", []int{5}},
		"free5gc_ipv6_downlink": {"free5gc", []int{5}},
	} {
		c, err := replay.Open(of.capture)
		if err != nil {
			t.Fatal(err)
		}
		var real, ours shape
		for _, m := range c.Messages {
			if slices.Contains(of.frames, m.Frame) {
				real.read(m.Payload)
			}
		}
		ours.read(sent(t, shapes[name]))
		if len(real.lines) < 4 {
			t.Fatalf("%s: frames %v hold %q", name, of.frames, real.lines)
		}
		slices.Sort(real.lines)
		slices.Sort(ours.lines)
		if diff := gocmp.Diff(real.lines, ours.lines); diff != "" {
			t.Errorf("%s (-captured +ours):\n%s", name, diff)
		}
	}
}

// sent is the establishment of the group's first session.
func sent(t *testing.T, s *Sessions) []byte {
	t.Helper()
	upf := recorder(t)
	c, err := smf.Dial(smf.Options{UPF: upf.addr, Local: netip.MustParseAddrPort("127.92.0.1:0"), Dialect: s.Dialect})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec := s.SMFSpec(1)
	spec.Count = 1
	g, err := c.Add(spec)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := g.Establish(t.Context(), smf.Pace{}); err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	upf.mu.Lock()
	defer upf.mu.Unlock()
	return upf.establishment
}

// recording is a UPF that accepts everything behind a relay that keeps the last
// establishment.
type recording struct {
	addr          netip.AddrPort
	mu            sync.Mutex
	establishment []byte
}

func recorder(t *testing.T) *recording {
	t.Helper()
	listen := func(text string) *net.UDPConn {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(text)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	upf, err := smf.ListenResponder(netip.MustParseAddrPort("127.92.0.3:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = upf.Serve(ctx) }) // its end is the test's
	front, back := listen("127.92.0.2:0"), listen("127.92.0.4:0")
	r := &recording{addr: front.LocalAddr().(*net.UDPAddr).AddrPort()}
	ended.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := front.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if h, ok := wire.ParseHeader(b[:n]); ok && h.Kind == message.MsgTypeSessionEstablishmentRequest {
				r.mu.Lock()
				r.establishment = slices.Clone(h.Payload)
				r.mu.Unlock()
			}
			if _, err := back.WriteToUDPAddrPort(b[:n], upf.Addr()); err != nil {
				return
			}
			if n, err = back.Read(b); err != nil {
				return
			}
			if _, err := front.WriteToUDPAddrPort(b[:n], from); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); front.Close(); back.Close(); ended.Wait() })
	return r
}

// shape is what the data path gets of a session: a line for each PDR, FAR, QER and URR, of
// which PDRs name the others by what these are, not by their IDs.
type shape struct{ lines []string }

// said are IEs of which a shape has the value; of named ones it has that they are there, and of
// F-TEIDs who chooses them. Left out are IDs, addresses, names, and what sets when usage is reported and packets are
// dropped: a measurement must not run into that.
var (
	said = []uint16{ie.SourceInterface, ie.OuterHeaderRemoval, ie.TGPPInterfaceType, ie.GateStatus, ie.MeasurementMethod, ie.MeasurementInformation,
		ie.ApplyAction, ie.DestinationInterface}
	named = []uint16{ie.FTEID, ie.SDFFilter, ie.QFI, ie.UEIPAddress, ie.MBR, ie.GBR, ie.NetworkInstance, ie.OuterHeaderCreation}
)

const choose = 1 << 2 // TS 29.244, 8.2.3: the UPF does

// ruleNames and ruleIDs are of the rules that a PDR names.
var (
	ruleNames = map[uint16]string{ie.CreateFAR: "FAR", ie.CreateQER: "QER", ie.CreateURR: "URR"}
	ruleIDs   = map[uint16]uint16{ie.CreateFAR: ie.FARID, ie.CreateQER: ie.QERID, ie.CreateURR: ie.URRID}
)

func (s *shape) read(b []byte) {
	rules := map[string]string{}
	wire.Each(b, func(kind uint16, value []byte) {
		id := ruleIDs[kind]
		if id == 0 {
			return
		}
		text := ruleNames[kind] + content(value, rules)
		wire.Each(value, func(k uint16, v []byte) {
			if k == id {
				rules[fmt.Sprint(id, v)] = text
			}
		})
		s.lines = append(s.lines, text)
	})
	wire.Each(b, func(kind uint16, value []byte) {
		if kind == ie.CreatePDR {
			s.lines = append(s.lines, fmt.Sprint("PDR", content(value, rules)))
		}
	})
}

// content is what a rule consists of.
func content(b []byte, rules map[string]string) string {
	var parts []string
	wire.Each(b, func(kind uint16, value []byte) {
		switch {
		case kind == ie.PDI:
			parts = append(parts, "PDI"+content(value, rules))
		case kind == ie.ForwardingParameters:
			parts = append(parts, "forward"+content(value, rules))
		case slices.Contains(said, kind):
			parts = append(parts, fmt.Sprintf("%d=%x", kind, value))
		case kind == ie.FTEID && value[0]&choose != 0:
			parts = append(parts, fmt.Sprint(kind, " CHOOSE"))
		case slices.Contains(named, kind):
			parts = append(parts, fmt.Sprint(kind))
		case kind == ie.FARID || kind == ie.URRID || kind == ie.QERID:
			if rule := rules[fmt.Sprint(kind, value)]; rule != "" {
				parts = append(parts, rule)
			}
		}
	})
	return "{" + strings.Join(parts, " ") + "}"
}
