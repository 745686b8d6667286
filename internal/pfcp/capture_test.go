package pfcp

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// captured message of a conversation.
type sample struct {
	from, to netip.Addr
	data     []byte
}

// conversation are the PFCP messages of a capture.
func conversation(t testing.TB, dialect string) []sample {
	t.Helper()
	f, err := os.Open("testdata/n4-" + dialect + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []sample
	for {
		frame, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(frame, r.LinkType(), gopacket.Default)
		ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp, ok2 := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok || !ok2 || udp.DstPort != Port {
			continue
		}
		from, _ := netip.AddrFromSlice(ip.SrcIP.To4())
		to, _ := netip.AddrFromSlice(ip.DstIP.To4())
		list = append(list, sample{from, to, slices.Clone(udp.Payload)})
	}
}
