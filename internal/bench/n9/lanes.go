package n9

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/lab"
)

// slice is one of the two: what the laboratory (slices-bench) says of it.
type slice struct {
	name     string
	last     string // node before its data network
	dn       string // its data network
	dnPort   string // interface of the data network
	ue       string
	gnb      string // address of N3
	gnbTEID  uint32 // downlink
	qfi      uint8
	sessions string // as the F-TEID is referred to that gives the gNB its TEID; empty: no node has a session
	sid      string // of UPF1, in place of the F-TEID's address
}

// The ways into UPF1 and out of the slice's last node: by sessions of UPF1, by SIDs of UPF1
// to sessions of the slice's UPF, and by SIDs to a service node behind that one.
var (
	bySessions = [2]slice{
		{name: "A", last: "upf2", dn: "dn1", dnPort: n6, ue: "10.60.0.1", gnb: "10.1.0.1", gnbTEID: 0xa1, qfi: 9, sessions: "a1/ue/access"},
		{name: "B", last: "upf3", dn: "dn2", dnPort: n6, ue: "10.61.0.1", gnb: "2001:db8:1::1", gnbTEID: 0xb1, qfi: 5, sessions: "b1/ue/access"},
	}
	bySIDs = [2]slice{
		{name: "A", last: "upf2", dn: "dn1", dnPort: n6, ue: "10.60.0.1", gnb: "2001:db8:1::1", gnbTEID: 0xa6, qfi: 9, sessions: "a2/ue/access", sid: "2001:db8:6d:a::1"},
		{name: "B", last: "upf3", dn: "dn2", dnPort: n6, ue: "10.61.0.1", gnb: "2001:db8:1::1", gnbTEID: 0xb6, qfi: 5, sessions: "b3/ue/access", sid: "2001:db8:6d:b::1"},
	}
	byFunctions = [2]slice{
		{name: "A", last: "func1", dn: "dn1", dnPort: "func", ue: "10.62.0.1", gnb: "2001:db8:1::1", gnbTEID: 0xa7, qfi: 9, sid: "2001:db8:6d:a::1"},
		{name: "B", last: "func2", dn: "dn2", dnPort: "func", ue: "10.63.0.1", gnb: "2001:db8:1::1", gnbTEID: 0xb7, qfi: 5, sid: "2001:db8:6d:b::1"},
	}
)

// anyTEID is what the gNB sends where no node has a session.
const anyTEID = 0xa007

// server is in both data networks, which have the same addresses.
const server = "198.51.100.1"

// flows are as many as a UE has, so that nothing is of one only.
const flows = 64

// The interfaces that packets come in by.
const (
	n3 = "n3" // of gnb and upf1
	n6 = "n6" // of the nodes before the data networks, and of these
)

// lane is one slice's way in one direction.
type lane struct {
	tx, rx       traffic.Port
	send, expect traffic.Template
}

// laneOf finds out where a slice's packets go: its UPFs chose tunnels.
func laneOf(ctx context.Context, network *lab.Network, s slice, direction string, size int) (lane, error) {
	upf1, teid, err := s.tunnel(ctx, network)
	if err != nil {
		return lane{}, fmt.Errorf("slice %s: %w", s.name, err)
	}
	ends := [][2]string{{"gnb", n3}, {"upf1", n3}, {s.last, n6}, {s.dn, s.dnPort}} // up: from the first to the second, from the third to the last
	if direction == downlink {
		slices.Reverse(ends)
	}
	l := lane{tx: portOf(network, ends[0]), rx: portOf(network, ends[3])}
	l.send, l.expect = s.templates(upf1, teid, direction, size)
	if l.send.Ethernet.Destination, err = macOf(network, ends[1]); err != nil {
		return l, err
	}
	l.expect.Ethernet.Destination, err = macOf(network, ends[3])
	return l, err
}

// tunnel is what the gNB sends to.
func (s slice) tunnel(ctx context.Context, network *lab.Network) (to netip.Addr, teid uint32, err error) {
	teid = anyTEID
	if s.sessions != "" {
		to, teid, err = network.FTEID(ctx, s.sessions)
	}
	if s.sid != "" {
		to = netip.MustParseAddr(s.sid)
	}
	return to, teid, err
}

// templates are a slice's packets as they are sent and as they must come out.
func (s slice) templates(upf1 netip.Addr, teid uint32, direction string, size int) (sent, received traffic.Template) {
	ue, dn, gnb := netip.MustParseAddr(s.ue), netip.MustParseAddr(server), netip.MustParseAddr(s.gnb)
	tunnelled := traffic.Template{Name: "slice " + s.name + ", N3", Payload: size - lenIPv4, Flows: flows}
	tunnelled.Outer = traffic.Outer{Kind: traffic.GTPU, Source: gnb, Destination: upf1, TEID: teid, Container: traffic.Uplink, QFI: s.qfi}
	tunnelled.Inner = traffic.Inner{Source: ue, Destination: dn}
	if direction == downlink {
		tunnelled.Outer = traffic.Outer{Kind: traffic.GTPU, Source: upf1, Destination: gnb, TEID: s.gnbTEID, Container: traffic.Downlink, QFI: s.qfi}
		tunnelled.Inner = traffic.Inner{Source: dn, Destination: ue}
	}
	bare := tunnelled
	bare.Name, bare.Outer = "slice "+s.name+", N6", traffic.Outer{}
	if direction == downlink {
		return bare, tunnelled
	}
	return tunnelled, bare
}

// An end is a node and its interface.
func portOf(network *lab.Network, end [2]string) traffic.Port {
	return traffic.Port{Namespace: network.Namespace(end[0]), Interface: end[1]}
}

func macOf(network *lab.Network, end [2]string) (mac traffic.MAC, err error) {
	err = network.Do(end[0], func() error {
		i, err := net.InterfaceByName(end[1])
		if err != nil {
			return fmt.Errorf("interface %s of %s: %w", end[1], end[0], err)
		}
		mac = traffic.MAC(i.HardwareAddr)
		return nil
	})
	return mac, err
}

const lenIPv4 = 20
