package dataplane

import (
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/packet"
)

// A connection's mapping has the long timeout while it carries data, and the short one from the FIN
// or RST on: also after the last ACK of a UE that closes first, so that its port is free soon (RFC
// 5382 REQ-5). Data, or a SYN and what follows, begins anew.
func TestNATEndOfTCP(t *testing.T) {
	const fin, syn, rst, ack = 1, 2, 4, 16
	type sent struct {
		flags uint8
		data  int
	}
	d, port := natRig(t, Options{}), uint16(4711)
	for name, c := range map[string]struct {
		packets     []sent
		established bool
	}{
		"a SYN":                              {[]sent{{syn, 0}}, false},
		"the handshake":                      {[]sent{{syn, 0}, {ack, 0}}, true},
		"a SYN that is repeated":             {[]sent{{ack, 9}, {syn, 0}}, true},
		"the UE closes first":                {[]sent{{syn, 0}, {ack, 0}, {fin | ack, 0}, {ack, 0}}, false},
		"the UE closes second":               {[]sent{{syn, 0}, {ack, 0}, {ack, 0}, {fin | ack, 0}}, false},
		"with data in the FIN":               {[]sent{{ack, 9}, {fin | ack, 9}, {ack, 0}}, false},
		"half closed: the UE goes on to ACK": {[]sent{{ack, 9}, {fin | ack, 0}, {ack, 0}, {ack, 0}}, false},
		"reset":                              {[]sent{{ack, 9}, {rst, 0}}, false},
		"data of another connection":         {[]sent{{ack, 9}, {fin | ack, 0}, {ack, 0}, {ack, 9}, {ack, 0}}, true},
		"a new connection's SYN":             {[]sent{{ack, 9}, {fin | ack, 0}, {ack, 0}, {syn, 0}}, false},
		"a new connection":                   {[]sent{{ack, 9}, {fin | ack, 0}, {ack, 0}, {syn, 0}, {ack, 0}}, true},
	} {
		port++
		for _, p := range c.packets {
			out, why := through(t, d, gpdu(7, packet.IPv4{Src: ue4(5), Dst: addr(natHost)},
				packet.TCP{Sport: port, Dport: 443, Flags: new(p.flags)}, packet.Payload{Count: p.data}))
			if out == nil {
				t.Fatalf("%s: %s", name, why)
			}
		}
		list := slices.DeleteFunc(d.NAT.Mappings(prefix("10.45.0.0/26"), natOf, ue4(5)), func(m nat.Mapping) bool { return m.Private != port })
		if len(list) != 1 || list[0].Established != c.established {
			t.Errorf("%s: %+v, want established %t", name, list, c.established)
		}
	}
}

// A port is free once its UE has not sent from it for tcp_transitory, and not before: a UE with
// eight ports, all in use, gets another connection then. Connections that are open keep theirs.
func TestNATPortIsFreeInTime(t *testing.T) {
	const fin, syn, ack = 1, 2, 16
	const transitory = 2 * time.Second
	d := natRig(t, Options{})
	n := nat.NAT{Addresses: prefix("198.51.100.0/32"), PortsPerUE: nat.Group, Timeouts: nat.Timeouts{TCPTransitory: uint32(transitory / time.Second)}}.WithDefaults()
	natSettings(t, d, n)
	send := func(ue, teid uint32, sport uint16, flags uint8) bool {
		t.Helper()
		out, why := through(t, d, gpdu(teid, packet.IPv4{Src: ue4(ue), Dst: addr(natHost)}, packet.TCP{Sport: sport, Dport: 443, Flags: &flags}))
		if out == nil && why.String() != "nat_ports" {
			t.Fatal(why)
		}
		return out != nil
	}
	var last time.Time
	for i := range uint16(nat.Group) {
		for _, flags := range []uint8{syn, ack, fin | ack, ack} {
			last = time.Now()
			if !send(5, 7, 1000+i, flags) || flags&fin == 0 && !send(21, 8, 1000+i, flags) {
				t.Fatalf("connection %d gets no port", i)
			}
		}
	}
	for !send(5, 7, 2000, syn) {
		if time.Since(last) > transitory+4*time.Second {
			t.Fatalf("after %v no port is free", time.Since(last))
		}
		time.Sleep(20 * time.Millisecond)
	}
	if after := time.Since(last); after < transitory {
		t.Errorf("a port is free after %v, and the timeout is %v", after, transitory)
	}
	if send(21, 8, 2000, syn) {
		t.Error("a UE with open connections gets the port of one")
	}
}
