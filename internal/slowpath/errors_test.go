package slowpath

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// tshark decodes IP packets and returns the fields of each, tab-separated. It
// fails if tshark finds anything wrong with one.
func tshark(t *testing.T, packets [][]byte, fields ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "errors.pcap")
	const linkTypeRaw = 101
	pcap := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	for _, v := range []uint32{2 | 4<<16, 0, 0, 65535, linkTypeRaw} {
		pcap = binary.LittleEndian.AppendUint32(pcap, v)
	}
	for _, p := range packets {
		for _, v := range []uint32{0, 0, uint32(len(p)), uint32(len(p))} {
			pcap = binary.LittleEndian.AppendUint32(pcap, v)
		}
		pcap = append(pcap, p...)
	}
	if err := os.WriteFile(file, pcap, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		args = append([]string{"-n", "-r", file, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"}, args...)
		var stderr bytes.Buffer
		cmd := exec.Command("tshark", args...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("tshark: %v\n%s", err, &stderr)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
	// The quoted packets are cut short: that is all that may be found.
	if bad := run("-V", "-Y", "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0 || icmpv6.checksum.status == 0"); bad != "" {
		t.Errorf("tshark finds fault with\n%s", bad)
	}
	args := []string{"-T", "fields", "-E", "occurrence=f"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	return strings.Split(run(args...), "\n")
}

func TestICMPErrors(t *testing.T) {
	long6, long4 := whole6(t, 1900), whole4(t, 1900)
	short6, short4 := whole6(t, 100), whole4(t, 100)
	b := newBench(Options{})
	b.handle(
		Packet{Kind: ICMPError, L3: 14, Type: 2, Info: 1400, Data: long6},
		Packet{Kind: ICMPError, L3: 14, Type: 3, Data: short6},
		Packet{Kind: ICMPError, L3: 14, Type: 4, Code: 4, Info: 40, Data: append(bytes.Clone(short6), 0, 0, 0)},
		Packet{Kind: ICMPError, L3: 14, Type: 2, Info: 1380, Data: long4},
		Packet{Kind: ICMPError, L3: 14, Type: 3, Data: append(bytes.Clone(short4), 0, 0, 0)},
		Packet{Kind: ICMPError, L3: 14, Type: 1, Data: short4},
		Packet{Kind: ICMPError, L3: 14, Type: 1, Code: 1, Data: short4},
		Packet{Kind: ICMPError, L3: 14, Type: 1, Code: 3, Data: short4},
		Packet{Kind: ICMPError, L3: 14, Type: 1, Data: short6},
	)
	if b.count("icmp_sent") != 9 {
		t.Fatalf("%d sent", b.count("icmp_sent"))
	}
	// The first occurrence of an address is the outer one's.
	got := tshark(t, b.sent, "frame.len", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
		"icmpv6.type", "icmpv6.code", "icmpv6.mtu", "icmpv6.pointer", "icmp.type", "icmp.code", "icmp.mtu")
	want := []string{
		"1280\t\t\t2001:db8:9::9\t2001:db8::1\t2\t0\t1400\t\t\t\t",
		"196\t\t\t2001:db8:9::9\t2001:db8::1\t3\t0\t\t\t\t\t",
		"196\t\t\t2001:db8:9::9\t2001:db8::1\t4\t4\t\t40\t\t\t",
		"576\t198.51.100.9\t192.0.2.1\t\t\t\t\t\t\t3\t4\t1380",
		"156\t198.51.100.9\t192.0.2.1\t\t\t\t\t\t\t11\t0\t",
		"156\t198.51.100.9\t192.0.2.1\t\t\t\t\t\t\t3\t0\t",
		"156\t198.51.100.9\t192.0.2.1\t\t\t\t\t\t\t3\t13\t",
		"156\t198.51.100.9\t192.0.2.1\t\t\t\t\t\t\t3\t1\t",
		"196\t\t\t2001:db8:9::9\t2001:db8::1\t1\t0\t\t\t\t\t",
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("error %d: %q, want %q", i, got[min(i, len(got)-1)], want[i])
		}
	}
	// The error quotes the packet unchanged, without padding.
	for i, quoted := range [][]byte{long6[14:], short6[14:], short6[14:], long4[14:], short4[14:]} {
		at := 48
		if i >= 3 {
			at = 28
		}
		if q := b.sent[i][at:]; !bytes.Equal(q, quoted[:min(len(quoted), len(q))]) {
			t.Errorf("error %d quotes\n%x\nwant\n%x", i, q, quoted)
		}
	}
}

func TestICMPErrorsNotSent(t *testing.T) {
	from6 := func(src, dst string) []byte {
		ip := ip6(layers.IPProtocolUDP)
		ip.SrcIP, ip.DstIP = netip.MustParseAddr(src).AsSlice(), netip.MustParseAddr(dst).AsSlice()
		return serialize(t, append(ethernet(layers.EthernetTypeIPv6), ip, udp(ip), payload(8))...)
	}
	from4 := func(src, dst string, edit func(*layers.IPv4)) []byte {
		ip := ip4(layers.IPProtocolUDP)
		ip.SrcIP, ip.DstIP = netip.MustParseAddr(src).AsSlice(), netip.MustParseAddr(dst).AsSlice()
		if edit != nil {
			edit(ip)
		}
		return serialize(t, append(ethernet(layers.EthernetTypeIPv4), ip, udp(ip), payload(8))...)
	}
	icmp6 := func(kind uint8, chain bool) []byte {
		body := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
		ip := ip6(layers.IPProtocolICMPv6)
		if chain {
			ip.NextHeader = layers.IPProtocolIPv6Destination
			body = append([]byte{58, 0, 1, 4, 0, 0, 0, 0}, body...)
		}
		return serialize(t, append(ethernet(layers.EthernetTypeIPv6), ip, gopacket.Payload(body))...)
	}
	icmp4 := func(kind uint8) []byte {
		return serialize(t, append(ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4), gopacket.Payload{kind, 0, 0, 0, 0, 0, 0, 0})...)
	}
	for name, c := range map[string]struct {
		frame []byte
		kind  uint8
		sent  uint64
	}{
		"about ICMPv6 error":              {icmp6(1, false), 3, 0},
		"about ICMPv6 error in a chain":   {icmp6(3, true), 3, 0},
		"about ICMPv6 Redirect":           {icmp6(137, false), 3, 0},
		"about ICMPv6 neighbour advert":   {icmp6(136, false), 3, 1},
		"about ICMPv6 echo":               {icmp6(128, false), 3, 1},
		"about ICMPv6 echo in a chain":    {icmp6(128, true), 3, 1},
		"about ICMP error":                {icmp4(11), 3, 0},
		"about ICMP redirect":             {icmp4(5), 3, 0},
		"about ICMP echo":                 {icmp4(8), 3, 1},
		"IPv6 unspecified source":         {from6("::", "2001:db8::2"), 3, 0},
		"IPv6 multicast source":           {from6("ff02::1", "2001:db8::2"), 3, 0},
		"IPv6 multicast destination":      {from6("2001:db8::1", "ff02::1"), 2, 0},
		"IPv4 multicast destination":      {from4("192.0.2.1", "224.0.0.5", nil), 3, 0},
		"IPv4 broadcast":                  {from4("192.0.2.1", "255.255.255.255", nil), 3, 0},
		"IPv4 unspecified source":         {from4("0.0.0.0", "192.0.2.2", nil), 3, 0},
		"IPv4 loopback source":            {from4("127.0.0.1", "192.0.2.2", nil), 3, 0},
		"IPv4 later fragment":             {from4("192.0.2.1", "192.0.2.2", func(ip *layers.IPv4) { ip.FragOffset = 4 }), 3, 0},
		"IPv4 parameter problem":          {whole4(t, 8), 4, 0},
		"IPv6 parameter problem":          {whole6(t, 8), 4, 1},
		"IPv4 time exceeded":              {whole4(t, 8), 3, 1},
		"IPv6 later fragment of an error": {later6(t), 3, 1},
	} {
		b := newBench(Options{})
		b.handle(Packet{Kind: ICMPError, L3: 14, Type: c.kind, Data: c.frame})
		if got := uint64(len(b.sent)); got != c.sent || b.count("icmp_sent") != c.sent || b.count("icmp_suppressed") != 1-c.sent {
			t.Errorf("%s: %d sent, want %d", name, got, c.sent)
		}
	}
}

// An error about what came out of another packet here does not go back by the link.
func TestICMPErrorAboutRewritten(t *testing.T) {
	for _, rewritten := range []bool{false, true} {
		b := newBench(Options{})
		b.handle(Packet{Kind: ICMPError, L3: 14, Type: 3, Table: 254, Rewritten: rewritten, Data: whole6(t, 8)})
		if back := b.ways[0].Back != nil; back == rewritten {
			t.Errorf("rewritten %v: goes back by the link: %v", rewritten, back)
		}
	}
}

// later6 is a later fragment of an ICMPv6 packet, whose first byte is not a
// type.
func later6(t *testing.T) []byte {
	p := part(whole6(t, 100), 14, 8, 108, 9)
	p.Data[14+40] = 58
	return p.Data
}

func TestErrorIndication(t *testing.T) {
	gpdu := []byte{0x30, 255, 0, 0, 0xde, 0xad, 0xbe, 0xef}
	v4, v6 := ip4(layers.IPProtocolUDP), ip6(layers.IPProtocolUDP)
	b := newBench(Options{})
	b.handle(
		Packet{Kind: ErrorIndication, L3: 14, Info: 0xdeadbeef,
			Data: serialize(t, append(ethernet(layers.EthernetTypeIPv4), v4, udp(v4), gopacket.Payload(gpdu))...)},
		Packet{Kind: ErrorIndication, L3: 18, Info: 0xdeadbeef,
			Data: serialize(t, append(ethernet(layers.EthernetTypeIPv6, 7), v6, udp(v6), gopacket.Payload(gpdu))...)},
		Packet{Kind: ErrorIndication, L3: 14, Data: serialize(t, append(ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolTCP), payload(40))...)},
	)
	if b.count("error_indications_sent") != 2 || b.count("malformed") != 1 {
		t.Fatalf("%d sent, %d malformed", b.count("error_indications_sent"), b.count("malformed"))
	}
	got := tshark(t, b.sent, "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "udp.srcport", "udp.dstport",
		"gtp.message", "gtp.teid", "gtp.teid_data", "gtp.gsn_ipv4", "gtp.gsn_ipv6", "gtp.ext_hdr.udp_port")
	want := []string{
		"192.0.2.2\t192.0.2.1\t\t\t2152\t2152\t0x1a\t0x00000000\t0xdeadbeef\t192.0.2.2\t\t40000",
		"\t\t2001:db8::2\t2001:db8::1\t2152\t2152\t0x1a\t0x00000000\t0xdeadbeef\t\t2001:db8::2\t40000",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("tshark reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
