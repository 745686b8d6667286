package session

import (
	"net/netip"
	"testing"
)

func TestWords(t *testing.T) {
	qfi, n9 := uint8(9), TypeN9
	addr := netip.MustParseAddr
	s := &Session{
		FARs: []FAR{
			{ID: 1, Action: Forward, Forwarding: &Forwarding{Destination: Core, NetworkInstance: "internet"}},
			{ID: 2, Action: Forward, Forwarding: &Forwarding{Destination: Access, Outer: &OuterHeader{Addr: addr("10.1.0.1"), TEID: 7}}},
			{ID: 3, Action: Buffer | Notify},
			{ID: 4, Action: Buffer | Duplicate, Duplicates: make([]Forwarding, 1)},
			{ID: 5, Action: Drop},
			{ID: 6, Action: Forward},
			{ID: 7, Action: Forward, Forwarding: &Forwarding{Destination: Access}},
			{ID: 8, Action: Forward, Forwarding: &Forwarding{Destination: CPFunction, Outer: &OuterHeader{Addr: addr("10.4.0.2"), TEID: 1}}},
			{ID: 9, Action: Forward, Forwarding: &Forwarding{Destination: Core, Outer: &OuterHeader{Kind: OuterUDP, Addr: addr("10.5.0.1")}}},
			{ID: 10, Action: Forward, Forwarding: &Forwarding{Destination: Access, InterfaceType: &n9, Outer: &OuterHeader{Addr: addr("10.5.0.1"), TEID: 9}}},
			{ID: 11, Action: Forward, Forwarding: &Forwarding{Destination: SGiLAN}},
		},
		QERs: []QER{
			{ID: 1, MBR: &BitRate{Uplink: 50_000, Downlink: 2_500_000}, QFI: &qfi},
			{ID: 2, UplinkClosed: true, MBR: &BitRate{Uplink: 64, Downlink: 1500}},
			{ID: 3, DownlinkClosed: true},
		},
	}
	up := PDI{Source: Access, TEID: 0x11, TEID4: addr("10.1.0.254"), TEID6: addr("2001:db8::1"), QFIs: []uint8{9, 5}, UE: []netip.Prefix{netip.MustParsePrefix("10.45.0.2/32")}}
	down := PDI{Source: Core, UE: up.UE, NetworkInstance: "internet"}
	for _, tt := range []struct {
		pdr  PDR
		want string
	}{
		{PDR{PDI: up, FAR: 1, QERs: []uint32{1}, URRs: []uint32{1, 4}},
			"uplink, TEID 0x11 at 10.1.0.254 2001:db8::1, QFI 9 5, UE 10.45.0.2/32 -> N6 of internet, at most 50 Mbit/s (QER 1), counted by URR 1 4"},
		{PDR{PDI: down, FAR: 2, QERs: []uint32{1, 2}},
			"downlink, UE 10.45.0.2/32, network instance internet -> gNB 10.1.0.1 TEID 0x7, at most 2.5 Gbit/s (QER 1), marked QFI 9 (QER 1), at most 1.5 Mbit/s (QER 2)"},
		{PDR{PDI: PDI{Source: Access}, FAR: 5, QERs: []uint32{2, 3, 99}}, "uplink -> dropped, gate closed (QER 2), at most 64 kbit/s (QER 2)"},
		{PDR{PDI: PDI{Source: Core}, FAR: 3, QERs: []uint32{3}}, "downlink -> buffered, and the SMF is told, gate closed (QER 3)"},
		{PDR{PDI: PDI{Source: Core, FramedRoutes: up.UE}, FAR: 4}, "downlink, behind it 10.45.0.2/32 -> buffered, 1 copies"},
		{PDR{PDI: PDI{Source: Core}, FAR: 6}, "downlink -> dropped: the SMF has not said where to"},
		{PDR{PDI: PDI{Source: Core}, FAR: 7}, "downlink -> dropped: the SMF has not named the gNB's tunnel"},
		{PDR{PDI: PDI{Source: Access, Filters: []Filter{{Text: "permit out 58 from ff02::2/128 to assigned"}}}, FAR: 8},
			`uplink, "permit out 58 from ff02::2/128 to assigned" -> SMF 10.4.0.2 TEID 0x1`},
		{PDR{PDI: PDI{Source: Access, ApplicationID: "video"}, FAR: 9}, "uplink, application video -> next UPF 10.5.0.1"},
		{PDR{PDI: PDI{Source: CPFunction}, FAR: 10}, "from the SMF -> UPF before 10.5.0.1 TEID 0x9"},
		{PDR{PDI: PDI{Source: SGiLAN, Ethernet: make([]EthernetFilter, 2)}, FAR: 11}, "from the N6-LAN, 2 Ethernet filters -> N6-LAN"},
		{PDR{PDI: PDI{Source: Core}, FAR: 77}, "downlink -> dropped: there is no FAR 77"},
	} {
		if got := s.Words(&tt.pdr); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}
