package pfcp

import (
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// ethernetPDR has an Ethernet packet filter of these.
func ethernetPDR(list ...*ie.IE) *ie.IE {
	return ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(1),
		ie.NewPDI(ie.NewSourceInterface(1), ie.NewEthernetPacketFilter(list...)), ie.NewFARID(1))
}

func withEthernet(_ *Config, u *fakeUPF) { u.features = session.Features{Ethernet: true} }

func TestEthernetFilter(t *testing.T) {
	b := newBed(t, withEthernet)
	m := b.smf(2)
	m.associate()
	from, lastFrom, to := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 1, 0}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	seid, _ := m.establish(1, ethernetPDR(ie.NewMACAddress(from, to, lastFrom, to), ie.NewEthertype(0x88f7),
		ie.New(ie.CTAG, []byte{4, 0x10, 0x23}), ie.New(ie.STAG, []byte{4, 0, 7})), toCore, ie.NewPDNType(ie.PDNTypeEthernet))
	c, s := uint16(0x123), uint16(7)
	want := []session.EthernetFilter{{Source: [6]byte(from), Destination: [6]byte(to), SourceTo: [6]byte(lastFrom), DestinationTo: [6]byte(to),
		EtherType: 0x88f7, CVLAN: &c, SVLAN: &s}}
	got := b.upf.Session(seid)
	if diff := cmp.Diff(want, got.PDRs[0].PDI.Ethernet); diff != "" || got.PDNType != session.PDNEthernet {
		t.Errorf("PDN type %d, filters (-want +got):\n%s", got.PDNType, diff)
	}
}

// What a filter asks for and no packet would be compared with is refused.
func TestEthernetFilterRefused(t *testing.T) {
	b := newBed(t, withEthernet)
	m := b.smf(2)
	m.associate()
	for name, filter := range map[string]*ie.IE{
		"bidirectional":    ie.NewEthernetFilterProperties(1),
		"priority":         ie.New(ie.CTAG, []byte{5, 0x12, 0x34}),
		"drop eligibility": ie.New(ie.STAG, []byte{2, 0x12, 0x34}),
	} {
		answer := m.tryEstablish(1, ethernetPDR(filter), toCore, ie.NewPDNType(ie.PDNTypeEthernet))
		if answer.Cause.Payload[0] != ie.CauseServiceNotSupported || answer.OffendingIE == nil {
			t.Errorf("%s: answered %v, offending %v", name, answer.Cause.Payload, answer.OffendingIE)
		}
	}
	b.upf.holdsNothing(t)
}

// A range has a first address, and ends behind it.
func TestRangeOfMACAddresses(t *testing.T) {
	b := newBed(t, withEthernet)
	m := b.smf(2)
	m.associate()
	for name, filter := range map[string]*ie.IE{
		"without a beginning":      ie.New(ie.MACAddress, []byte{4, 2, 0, 0, 0, 0, 1}),
		"from more to less":        ie.New(ie.MACAddress, []byte{10, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 9}),
		"whose end is cut short":   ie.New(ie.MACAddress, []byte{5, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0}),
		"of the other's beginning": ie.New(ie.MACAddress, []byte{6, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9}),
	} {
		answer := m.tryEstablish(1, ethernetPDR(filter), toCore, ie.NewPDNType(ie.PDNTypeEthernet))
		if cause := answer.Cause.Payload[0]; cause != ie.CauseMandatoryIEIncorrect && cause != ie.CauseInvalidLength {
			t.Errorf("a range %s: cause %d", name, cause)
		}
	}
	b.upf.holdsNothing(t)
}

func TestMACAddressReport(t *testing.T) {
	many := make([][6]byte, 300)
	for i := range many {
		many[i] = [6]byte{2, 0, 0, 0, byte(i >> 8), byte(i)}
	}
	r := session.UsageReport{URR: 1, Cause: session.CauseMACAddresses, Detected: many, Removed: many[:1]}
	got, err := wire.NewUsageReport(ie.UsageReportWithinSessionReportRequest, &r, nil).UsageReport()
	if err != nil {
		t.Fatal(err)
	}
	// go-pfcp reads one address too many.
	addresses := func(payload []byte) (list [][6]byte) {
		n := int(payload[0])
		if len(payload) != 1+6*n+2 || payload[1+6*n] != 0 || payload[2+6*n] != 0 { // no C-TAG, no S-TAG
			t.Fatalf("%d addresses in %d octets", n, len(payload))
		}
		for mac := range slices.Chunk(payload[1:1+6*n], 6) {
			list = append(list, [6]byte(mac))
		}
		return list
	}
	var detected, removed [][6]byte
	for _, i := range got {
		if i.Type == ie.UsageReportTrigger && !i.HasMACAR() {
			t.Error("MACAR is not the trigger")
		}
		for _, part := range i.ChildIEs {
			switch part.Type {
			case ie.MACAddressesDetected:
				detected = append(detected, addresses(part.Payload)...)
			case ie.MACAddressesRemoved:
				removed = append(removed, addresses(part.Payload)...)
			}
		}
	}
	if !slices.Equal(detected, many) || !slices.Equal(removed, many[:1]) {
		t.Errorf("%d detected, %d removed: want 300 and 1", len(detected), len(removed))
	}
}
