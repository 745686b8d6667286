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
	upf, dn  string // nodes: its second UPF and its data network
	ue       string
	gnb      string // address of N3
	gnbTEID  uint32 // downlink
	qfi      uint8
	sessions string // as an F-TEID is referred to, at UPF1, access side
}

var bothSlices = [2]slice{
	{name: "A", upf: "upf2", dn: "dn1", ue: "10.60.0.1", gnb: "10.1.0.1", gnbTEID: 0xa1, qfi: 9, sessions: "a1/ue/access"},
	{name: "B", upf: "upf3", dn: "dn2", ue: "10.61.0.1", gnb: "2001:db8:1::1", gnbTEID: 0xb1, qfi: 5, sessions: "b1/ue/access"},
}

// server is in both data networks, which have the same addresses.
const server = "198.51.100.1"

// flows are as many as a UE has, so that nothing is of one only.
const flows = 64

// The interfaces that packets come in by.
const (
	n3 = "n3" // of gnb and upf1
	n6 = "n6" // of the second UPFs and the data networks
)

// lane is one slice's way in one direction.
type lane struct {
	tx, rx       traffic.Port
	send, expect traffic.Template
}

// laneOf finds out where a slice's packets go: its UPFs chose tunnels.
func laneOf(ctx context.Context, network *lab.Network, s slice, direction string, size int) (lane, error) {
	upf1, teid, err := network.FTEID(ctx, s.sessions)
	if err != nil {
		return lane{}, fmt.Errorf("slice %s: %w", s.name, err)
	}
	ends := [][2]string{{"gnb", n3}, {"upf1", n3}, {s.upf, n6}, {s.dn, n6}} // up: from the first to the second, from the third to the last
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
