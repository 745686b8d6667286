package bgp

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// teller is a peer that writes its messages by hand.
type teller struct {
	t    *testing.T
	conn net.Conn
}

// tellTo opens a session from one address to a speaker at another.
func tellTo(t *testing.T, from, to netip.Addr, families ...bgp.Family) *teller {
	t.Helper()
	return tellAt(t, from, netip.AddrPortFrom(to, testPort), families...)
}

func tellAt(t *testing.T, from netip.Addr, to netip.AddrPort, families ...bgp.Family) *teller {
	t.Helper()
	return tellWith(t, from, to, nil, families...)
}

// tellWith is tellAt with more capabilities.
func tellWith(t *testing.T, from netip.Addr, to netip.AddrPort, more []bgp.ParameterCapabilityInterface, families ...bgp.Family) *teller {
	t.Helper()
	caps := append(more, bgp.NewCapFourOctetASNumber(65001), bgp.NewCapExtendedMessage())
	for _, f := range families {
		caps = append(caps, bgp.NewCapMultiProtocol(f))
	}
	open, err := bgp.NewBGPOpenMessage(65001, 90, addr("10.0.0.66"), []bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(caps)})
	if err != nil {
		t.Fatal(err)
	}
	p := &teller{t: t}
	// A speaker that does not yet wait for this peer closes its connection: as any
	// peer, try again until it says something.
	eventually(t, "the speaker opens a session", func() bool {
		p.conn, err = call(from, to, open)
		return err == nil
	})
	t.Cleanup(func() { p.conn.Close() })
	go io.Copy(io.Discard, p.conn) // whatever is said to it
	p.send(bgp.NewBGPKeepAliveMessage())
	return p
}

// call connects, sends an OPEN and waits for the first octet of the answer.
func call(from netip.Addr, to netip.AddrPort, open *bgp.BGPMessage) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: 10 * time.Second}
	conn, err := dialer.Dial("tcp", to.String())
	if err != nil {
		return nil, err
	}
	b, err := open.Serialize()
	if err == nil {
		_, err = conn.Write(b)
	}
	if err == nil {
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, conn.SetReadDeadline(time.Time{})
}

func (p *teller) send(m *bgp.BGPMessage) {
	p.t.Helper()
	b, err := m.Serialize()
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(b)
}

func (p *teller) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// update sends path attributes as they are.
func (p *teller) update(attrs string) {
	p.t.Helper()
	body := unhex(p.t, attrs)
	b := make([]byte, 23, 23+len(body))
	for i := range 16 {
		b[i] = 0xff
	}
	binary.BigEndian.PutUint16(b[16:], uint16(23+len(body)))
	b[18] = bgp.BGP_MSG_UPDATE
	binary.BigEndian.PutUint16(b[21:], uint16(len(body)))
	p.write(append(b, body...))
}

const (
	wellKnown = "40 01 01 00\n40 02 00\n40 05 04 00000064\n" // ORIGIN, AS_PATH, LOCAL_PREF
	// MP_REACH_NLRI of 2001:db8:77::/48 by 2001:db8::66, and of it in the VPN.
	unicast6 = "80 0e 1c 0002 01 10 2001 0db8 0000 0000 0000 0000 0000 0066 00 30 2001 0db8 0077\n"
	vpn6     = "80 0e 2f 0002 80 18 0000000000000000 2001 0db8 0000 0000 0000 0000 0000 0066 00 88 000101 0000 fde8 00000001 2001 0db8 0077\n"
	target   = "c0 10 08 0002 fde8 00000064\n"
)

// What is malformed is treated as a withdrawal, and counted; the session stays,
// and what is sound is taken again.
func TestMalformedRoutes(t *testing.T) {
	const prefix, own, from = "2001:db8:77::/48", "127.94.10.1", "127.94.10.66"
	m := join(t, "10", "1", Config{
		Peers:   []Peer{{Address: addr(from), Passive: true}},
		Cluster: &Cluster{VPN: &VPN{Distinguisher: "65001:7", Import: []string{"65000:100"}, Export: []string{"65000:100"}}},
	})
	peer := tellTo(t, addr(from), addr(own), bgp.RF_IPv6_UC, bgp.RF_IPv6_VPN)
	established(t, m.Speaker)
	sound := wellKnown + vpn6 + target + transposed
	const sid = "2001:db8:1:1:1::" // its last 16 bits are those of label 0x00010
	malformed := func() uint64 {
		peers, err := m.Peers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return peers[0].Malformed
	}
	is := func(segments ...netip.Addr) bool {
		routes := m.routes.of(prefix)
		return len(routes) == 1 && len(routes[0].Segments) == len(segments) && (len(segments) == 0 || routes[0].Segments[0] == segments[0])
	}
	for name, tt := range map[string]struct {
		attrs   string
		counted bool // else only logged
	}{
		"bits of the SID behind its end": {wellKnown + vpn6 + target + replaced(transposed, "28 18 10 00 10 40", "28 18 10 00 10 48"), true},
		"a TLV longer than the rest":     {wellKnown + vpn6 + target + replaced(transposed, "05 0022", "05 0023"), true},
		"a SID that is none":             {wellKnown + vpn6 + target + replaced(transposed, "2001 0db8 0001 0001", "ff02 0db8 0001 0001"), true},
		"an origin that is none":         {replaced(wellKnown, "40 01 01 00", "40 01 01 07") + vpn6 + target + transposed, false},
		"a NEXT_HOP of no octet":         {wellKnown + "40 03 00" + vpn6 + target + transposed, true},
		"a NEXT_HOP of 5 octets":         {wellKnown + "40 03 05 0a00000166" + vpn6 + target + transposed, true},
		"a NEXT_HOP of 15 octets":        {wellKnown + "40 03 0f 20010db80000000000000000000066" + vpn6 + target + transposed, true},
		"a NEXT_HOP of 17 octets":        {wellKnown + "40 03 11 20010db800000000000000000000006601" + vpn6 + target + transposed, true},
		"no AS path":                     {replaced(wellKnown, "40 02 00", "") + vpn6 + target + transposed, false},
	} {
		peer.update(sound)
		eventually(t, name+": a sound one is taken", func() bool { return is(addr(sid)) })
		before := malformed()
		peer.update(tt.attrs)
		eventually(t, name+": it is withdrawn", func() bool { return m.routes.of(prefix) == nil })
		if counted := malformed() > before; counted != tt.counted {
			t.Errorf("%s: counted %v, want %v", name, counted, tt.counted)
		}
	}
	peer.update(wellKnown + unicast6)
	eventually(t, "a plain one is taken", func() bool { return is() })
	peer.update(wellKnown + unicast6 + transposed)
	eventually(t, "bits in a label that is not there: it is withdrawn", func() bool { return m.routes.of(prefix) == nil })
	peer.update(wellKnown + unicast6 + whole)
	eventually(t, "one with a whole SID is taken", func() bool { return is(addr("fc00:0:1:4::")) })
	established(t, m.Speaker)
}
