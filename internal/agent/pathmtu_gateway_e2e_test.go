package agent

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// gatewayConfig: a gateway between an SR domain at the left and gNBs behind a router at the
// right, which has a link of 1400 octets.
const gatewayConfig = `
interfaces: [{name: d0, roles: [sr]}, {name: d1, roles: [n3], peers: [10.20.0.0/24, 10.50.0.0/24, 'fc00:20::/64', 'fc00:50::/64']}]
domain: ['fc00:10::/32']
encapsulation: {source: 'fc00:1::1'}
sids:
  - {sid: 'fc00:4e::/48', behavior: End.M.GTP4.E, source_prefix_length: 64}
  - {sid: 'fc00:6e::/64', behavior: End.M.GTP6.E, source: 'fc00:66::1'}
steering:
  - {prefix: 10.99.0.0/24, h_m_gtp4_d: {sid_prefix: 'fc00:4d::/48', source_prefix: 'fc00:44::/64', pdu_type: ipv4v6}}
`

// newGateway is the gateway's site, with its daemon. What the left host sends to 10.45.0.1 and .2
// goes to a gNB each over IPv4, and to .3 and .4 over IPv6: the kernel encapsulates it.
func newGateway(t *testing.T) *customer {
	t.Helper()
	s, far := newRouted(t)
	s.right.Addr(t, "r1", "fc00:50::fe/64")
	for _, a := range []string{"10.50.0.2/24", "fc00:50::1/64", "fc00:50::2/64"} {
		far.Addr(t, "f0", a)
	}
	const to4, to6 = " encap seg6 mode encap segs fc00:4e:0:a32:", " encap seg6 mode encap segs fc00:6e:0:0:1400:1:2300:0,fc00:50::"
	for _, words := range []string{
		"sr tunsrc set fc00:10:0:0:a63:7::", "-6 route add fc00::/16 via fc00:10::ff",
		"route add 10.45.0.1" + to4 + "1:1400:1:2300 dev l0", "route add 10.45.0.2" + to4 + "2:1400:1:2300 dev l0",
		"route add 10.45.0.3" + to6 + "1 dev l0", "route add 10.45.0.4" + to6 + "2 dev l0",
	} {
		s.left.IP(t, words)
	}
	s.node.IP(t, "-6 route add fc00:50::/64 via fc00:20::1")
	s.right.IP(t, "route add 10.99.0.0/24 via 10.20.0.254")
	s.right.IP(t, "-6 route add fc00:66::/64 via fc00:20::ff")
	s.configure(t, gatewayConfig)
	c := &customer{site: s, daemon: s.daemon(t, os.Args[0])}
	c.atLeft = packetSocket(t, s.left, s.in.Index)
	return c
}

// A router says that G-PDUs are too big, to addresses that this host does not have: End.M.GTP4.E
// took them from each packet, and of End.M.GTP6.E only the SID's source is configured. The
// headend hears of it, with what is left for its own packets. Other gNBs by the same router keep
// the link's MTU. With the rights of the service.
func TestRouterLowersAGatewaysPath(t *testing.T) {
	c := newGateway(t)
	told := func(to string, mtu int) bool {
		c.ping(t, to, 1400)
		return arrives(t, c.atLeft, 100*time.Millisecond, func(f []byte) bool {
			return len(f) >= 62 && f[20] == 58 && f[54] == 2 && (mtu == 0 || binary.BigEndian.Uint32(f[58:]) == uint32(mtu))
		}) != nil
	}
	for to, mtu := range map[string]int{"10.45.0.1": 1400 - 36 + 64, "10.45.0.3": 1400 - 56 + 80} {
		heard := false
		for try := 0; try < 3 && !heard; try++ { // the first one teaches the gateway
			heard = told(to, mtu)
		}
		if !heard {
			t.Errorf("to %s nobody tells the left host of %d octets", to, mtu)
		}
	}
	c.right.IP(t, "link set r1 mtu 1500")
	for _, other := range []string{"10.45.0.2", "10.45.0.4"} {
		if told(other, 0) {
			t.Errorf("the left host is told of an MTU to %s, whose gNB no router spoke of", other)
		}
	}
	if t.Failed() {
		t.Log(c.daemon.log)
	}
}

// A node of the domain says that what H.M.GTP4.D made is too big, to an address that only the
// packets of a gNB have: sent by somebody outside of the domain the same has no effect.
func TestDomainLowersATranslatorsPath(t *testing.T) {
	c := newGateway(t)
	tell := func(from string) {
		quoted := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolIPv4, Length: 1460, SrcIP: addr("fc00:44:0:0:a32:1::").AsSlice(), DstIP: addr("fc00:4d:0:a63:7:1400:1:2300").AsSlice()}
		outer := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: addr(from).AsSlice(), DstIP: quoted.SrcIP}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}
		if err := icmp.SetNetworkLayerForChecksum(outer); err != nil {
			t.Fatal(err)
		}
		c.send(t, layers.EthernetTypeIPv6, outer, icmp, gopacket.Payload(append([]byte{0, 0, 1390 >> 8, 1390 & 0xff}, headerOf(t, quoted)...)))
	}
	const lowered = "the MTU of a path is lower"
	tell("fc00:99::1")
	if time.Sleep(300 * time.Millisecond); strings.Contains(c.daemon.log.String(), lowered) {
		t.Errorf("a host outside of the domain has lowered a path:\n%s", c.daemon.log)
	}
	tell("fc00:10::1")
	for range 100 {
		if strings.Contains(c.daemon.log.String(), lowered) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("the path is as it was:\n%s", c.daemon.log)
}
