package n9

import (
	"context"
	"fmt"
	"net"
	"net/netip"

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

// firstQueues are the interfaces whose queue is in front of the chain.
func firstQueues(direction string) [][2]string {
	if direction == uplink {
		return [][2]string{{"upf1", n3}}
	}
	var list [][2]string
	for _, s := range bothSlices {
		list = append(list, [2]string{s.upf, n6})
	}
	return list
}

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
	ue, dn := netip.MustParseAddr(s.ue), netip.MustParseAddr(server)
	gnb := netip.MustParseAddr(s.gnb)
	port := func(node, device string) traffic.Port {
		return traffic.Port{Namespace: network.Namespace(node), Interface: device}
	}
	mac := func(node, device string) (m traffic.MAC, err error) {
		err = network.Do(node, func() error {
			i, err := net.InterfaceByName(device)
			if err == nil {
				m = traffic.MAC(i.HardwareAddr)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("interface %s of %s: %w", device, node, err)
		}
		return m, nil
	}
	ends := [][2]string{{"gnb", n3}, {"upf1", n3}, {s.upf, n6}, {s.dn, n6}}
	macs := make([]traffic.MAC, len(ends))
	for i, e := range ends {
		if macs[i], err = mac(e[0], e[1]); err != nil {
			return lane{}, err
		}
	}
	up := traffic.Template{
		Name: "slice " + s.name + ", N3", Payload: size - lenIPv4, Flows: flows,
		Outer: traffic.Outer{Kind: traffic.GTPU, Source: gnb, Destination: upf1, TEID: teid, Container: traffic.Uplink, QFI: s.qfi},
		Inner: traffic.Inner{Source: ue, Destination: dn},
	}
	down := up
	down.Outer = traffic.Outer{Kind: traffic.GTPU, Source: upf1, Destination: gnb, TEID: s.gnbTEID, Container: traffic.Downlink, QFI: s.qfi}
	down.Inner = traffic.Inner{Source: dn, Destination: ue}
	if direction == uplink {
		return lane{tx: port("gnb", n3), rx: port(s.dn, n6), send: to(up, macs[1]), expect: to(plain(up), macs[3])}, nil
	}
	return lane{tx: port(s.dn, n6), rx: port("gnb", n3), send: to(plain(down), macs[2]), expect: to(down, macs[0])}, nil
}

const lenIPv4 = 20

// to addresses a template's frames.
func to(t traffic.Template, mac traffic.MAC) traffic.Template {
	t.Ethernet.Destination = mac
	return t
}

// plain is the T-PDU alone, as on N6.
func plain(t traffic.Template) traffic.Template {
	t.Name += ", the T-PDU"
	t.Outer = traffic.Outer{}
	return t
}
