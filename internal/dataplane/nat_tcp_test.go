package dataplane

import (
	"testing"

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
		d := natRig(t, Options{})
		for _, p := range c.packets {
			out, why := through(t, d, gpdu(7, packet.IPv4{Src: ue4(5), Dst: addr(natHost)},
				packet.TCP{Sport: 4711, Dport: 443, Flags: new(p.flags)}, packet.Payload{Count: p.data}))
			if out == nil {
				t.Fatalf("%s: %s", name, why)
			}
		}
		list := d.NAT.Mappings(prefix("10.45.0.0/26"), natOf, ue4(5))
		if len(list) != 1 || list[0].Established != c.established {
			t.Errorf("%s: %+v, want established %t", name, list, c.established)
		}
	}
}
