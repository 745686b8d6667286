package agent

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/smf"
)

const silentConfig = `
interfaces: [{name: d0, roles: [n3, n4], peers: [10.0.0.0/24]}, {name: d1, roles: [n6]}]
gtpu: {addresses: [10.0.0.254]}
upf: {n4: [10.0.0.254], smfs: [10.0.0.1/32], ue_pools: [{network_instance: internet, prefixes: [10.45.0.0/16]}]}
`

// A UPF in a container has a veth whose other end, the host's, does not receive with NAPI: what
// XDP sends back by it vanishes. The SMF's heartbeats and gNBs' Echo Requests are answered all the
// same, and those of others are not.
func TestAnswersByAnyVeth(t *testing.T) {
	for _, gro := range []string{"off", "on"} {
		t.Run("gro "+gro, func(t *testing.T) {
			s := newSite(t)
			s.left.Run(t, "ethtool", "-K", "l0", "gro", gro)
			s.node.Addr(t, "d0", "10.0.0.254/24")
			s.node.IP(t, "route add 10.9.0.0/24 dev d0")
			s.left.Addr(t, "l0", "10.0.0.1/24")
			s.left.Addr(t, "l0", "10.9.0.1/24")
			s.configure(t, silentConfig)
			s.daemon(t, os.Args[0])

			started := time.Now()
			s.associate(t, started)
			for n := range uint32(30) {
				s.answered(t, "10.0.0.1", smf.Port, heartbeatRequest(n, started), true)
				time.Sleep(10 * time.Millisecond)
			}
			echo, response := gtpu.AppendEchoRequest(nil, 7), gtpu.AppendEchoResponse(nil, 7)
			if got := s.answered(t, "10.0.0.1", gtpu.Port, echo, true); !bytes.Equal(got, response) {
				t.Errorf("Echo Request answered with %x, want %x", got, response)
			}
			s.answered(t, "10.9.0.1", gtpu.Port, echo, false)
		})
	}
}

// associate sets up an association of an SMF that started then, and leaves it.
func (s *site) associate(t *testing.T, started time.Time) {
	t.Helper()
	s.left.Do(t, func() {
		c, err := smf.Dial(smf.Options{UPF: netip.MustParseAddrPort("10.0.0.254:8805"), Local: netip.MustParseAddrPort("10.0.0.1:8805"), Started: started, Attempts: 10})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Associate(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// heartbeatRequest is one of an SMF that started then (TS 29.244 section 7.4.2).
func heartbeatRequest(sequence uint32, started time.Time) []byte {
	const from1900 = 2208988800
	b := binary.BigEndian.AppendUint32([]byte{0x20, 1, 0, 12}, sequence<<8)
	return binary.BigEndian.AppendUint32(append(b, 0, 96, 0, 4), uint32(started.Unix()+from1900))
}

// answered sends a message to the node, and wants an answer or none.
func (s *site) answered(t *testing.T, from string, port uint16, message []byte, wanted bool) (answer []byte) {
	t.Helper()
	patience := map[bool]time.Duration{true: 10 * time.Second, false: 300 * time.Millisecond}[wanted]
	s.left.Do(t, func() {
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.IPv4(10, 0, 0, 254), Port: int(port)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		answer = make([]byte, 100)
		n, err := 0, c.SetReadDeadline(time.Now().Add(patience))
		if err == nil {
			if _, err = c.Write(message); err == nil {
				n, err = c.Read(answer)
			}
		}
		if answer = answer[:n]; (err == nil) != wanted {
			t.Fatalf("%x from %s: answered with %x, %v; want an answer: %t", message, from, answer, err, wanted)
		}
	})
	return answer
}
