package replay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/packet"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// open is a capture that is built in.
func openTest(t testing.TB, name string) *Capture {
	t.Helper()
	c, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What the captures hold, counted by somebody else (tshark).
func TestConversation(t *testing.T) {
	for name, want := range map[string]struct {
		smf, upf                              string
		frames, exchanges, sessions, answered int
	}{
		"free5gc":      {"127.0.0.1", "127.0.0.8", 22, 11, 1, 11},
		"open5gs":      {"10.200.0.1", "10.200.0.8", 81, 32, 2, 31},
		"open5gs-live": {"10.4.0.1", "10.4.0.2", 487, 214, 6, 212},
		"sd-core":      {"10.4.0.2", "10.4.0.1", 46, 23, 3, 23},
	} {
		c := openTest(t, name)
		v, err := c.Conversation(netip.Addr{}, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		answered := 0
		for _, e := range v.Exchanges {
			if e.Answer != nil {
				answered++
			}
			if e.aboutSession() != (e.Session >= 0) {
				t.Errorf("%s: frame %d is about session %d", name, e.Request.Frame, e.Session)
			}
		}
		if v.SMF != addr(want.smf) || v.UPF != addr(want.upf) || c.Frames != want.frames || len(v.Exchanges) != want.exchanges ||
			len(v.Sessions) != want.sessions || answered != want.answered || len(c.Unreadable) != 0 {
			t.Errorf("%s: %v to %v, %d frames, %d exchanges, %d sessions, %d answered, want %+v", name, v.SMF, v.UPF, c.Frames, len(v.Exchanges), len(v.Sessions), answered, want)
		}
	}
}

// datagramOf is a PFCP message in a packet.
func datagramOf(from, to string, m message.Message) []byte {
	b := make([]byte, m.MarshalLen())
	if err := m.MarshalTo(b); err != nil {
		panic(err)
	}
	if addr(from).Is4() {
		return packet.Frame(packet.IPv4{Src: addr(from), Dst: addr(to)}, packet.UDP{Sport: port, Dport: port}, packet.Payload{Data: b})
	}
	return packet.Frame(packet.IPv6{Src: addr(from), Dst: addr(to)}, packet.UDP{Sport: port, Dport: port}, packet.Payload{Data: b})
}

// file writes packets as a capture, of which `cut` octets are lost of each.
func file(t testing.TB, link layers.LinkType, cut int, packets ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if err := w.WriteFileHeader(1<<16, link); err != nil {
		t.Fatal(err)
	}
	for i, p := range packets {
		info := gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(p) - cut, Length: len(p)}
		if err := w.WritePacket(info, p[:len(p)-cut]); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func ngFile(t testing.TB, packets ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeRaw)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range packets {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(p), Length: len(p)}, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// deletion is a request of an SMF's that is short.
func deletion(sequence uint32) message.Message {
	return message.NewSessionDeletionRequest(0, 0, 7, sequence, 0)
}

// fragments are the two parts of an IPv4 packet.
func fragments(p []byte) (first, second []byte) {
	const head, part = 20, 16
	first, second = slices.Clone(p[:head+part]), slices.Concat(p[:head], p[head+part:])
	binary.BigEndian.PutUint16(first[2:], uint16(len(first)))
	binary.BigEndian.PutUint16(first[6:], 0x2000)
	binary.BigEndian.PutUint16(second[2:], uint16(len(second)))
	binary.BigEndian.PutUint16(second[6:], part/8)
	return first, second
}

// Every form in which captures come is read.
func TestRead(t *testing.T) {
	ipv4, ipv6 := datagramOf("192.0.2.1", "192.0.2.8", deletion(1)), datagramOf("2001:db8::1", "2001:db8::8", deletion(1))
	ethernet := slices.Concat(bytes.Repeat([]byte{2}, 12), []byte{8, 0}, ipv4)
	vlan := slices.Concat(bytes.Repeat([]byte{2}, 12), []byte{0x81, 0, 0, 5, 8, 0}, ipv4)
	first, second := fragments(ipv4)
	two := deletion(1)
	b := make([]byte, two.MarshalLen())
	_ = two.MarshalTo(b)
	b[0] |= 4 // FO
	bundle := packet.Frame(packet.IPv4{Src: addr("192.0.2.1"), Dst: addr("192.0.2.8")}, packet.UDP{Sport: port, Dport: port}, packet.Payload{Data: slices.Concat(b, b[:0], ipv4[28:])})
	other := packet.Frame(packet.IPv4{Src: addr("192.0.2.1"), Dst: addr("192.0.2.8")}, packet.UDP{Sport: 53, Dport: 53}, packet.Payload{Data: ipv4[28:]})
	for name, tt := range map[string]struct {
		file []byte
		want int
	}{
		"raw IPv4":      {file(t, layers.LinkTypeRaw, 0, ipv4), 1},
		"raw IPv6":      {file(t, layers.LinkTypeRaw, 0, ipv6), 1},
		"Ethernet":      {file(t, layers.LinkTypeEthernet, 0, ethernet), 1},
		"VLAN":          {file(t, layers.LinkTypeEthernet, 0, vlan), 1},
		"pcapng":        {ngFile(t, ipv4, ipv6), 2},
		"fragments":     {file(t, layers.LinkTypeRaw, 0, first, second), 1},
		"two in one":    {file(t, layers.LinkTypeRaw, 0, bundle), 2},
		"among others":  {file(t, layers.LinkTypeRaw, 0, other, ipv4, other), 1},
		"one is broken": {file(t, layers.LinkTypeRaw, 0, ipv4[:len(ipv4)-1], ipv4), 1},
	} {
		c, err := Read(bytes.NewReader(tt.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(c.Messages) != tt.want {
			t.Errorf("%s: %d messages, want %d", name, len(c.Messages), tt.want)
		}
		for _, m := range c.Messages {
			if m.Kind != message.MsgTypeSessionDeletionRequest || m.SEID != 7 || m.Sequence != 1 {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

// What is no capture of N4 is refused in words that help.
func TestReadRefuses(t *testing.T) {
	good := file(t, layers.LinkTypeRaw, 0, datagramOf("192.0.2.1", "192.0.2.8", deletion(1)))
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"empty":          {nil, "shorter than the head"},
		"text":           {[]byte("PFCP is not pcap, and this is text"), "not a capture: give a pcap or pcapng file"},
		"ng head only":   {[]byte{0x0a, 0x0d, 0x0d, 0x0a, 1, 2, 3}, "not a pcapng file"},
		"no frames":      {file(t, layers.LinkTypeRaw, 0), "no PFCP (UDP port 8805) in 0 frames"},
		"other traffic":  {file(t, layers.LinkTypeRaw, 0, packet.Frame(packet.IPv4{Src: addr("192.0.2.1"), Dst: addr("192.0.2.8")}, packet.UDP{Sport: 53, Dport: 53})), "no PFCP (UDP port 8805) in 1 frames"},
		"snapshot":       {file(t, layers.LinkTypeRaw, 4, datagramOf("192.0.2.1", "192.0.2.8", deletion(1))), "tcpdump -s 0"},
		"cut off":        {good[:len(good)-3], "frame 1: the file is damaged or cut off here"},
		"all unreadable": {file(t, layers.LinkTypeRaw, 0, packet.Frame(packet.IPv4{Src: addr("192.0.2.1"), Dst: addr("192.0.2.8")}, packet.UDP{Sport: port, Dport: port}, packet.Payload{Data: []byte("no PFCP")})), "no PFCP"},
	} {
		if _, err := Read(bytes.NewReader(tt.file)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := Open("open6gs"); err == nil || !strings.Contains(err.Error(), "open5gs-live") {
		t.Errorf("a name that nothing has: %v", err)
	}
}

// Which conversation is played must be clear.
func TestWhichConversation(t *testing.T) {
	association := func(n uint32) message.Message { return message.NewAssociationSetupRequest(n) }
	c, err := Read(bytes.NewReader(file(t, layers.LinkTypeRaw, 0,
		datagramOf("192.0.2.1", "192.0.2.8", association(1)), datagramOf("192.0.2.1", "192.0.2.9", association(1)),
		datagramOf("192.0.2.2", "192.0.2.8", association(1)), datagramOf("192.0.2.8", "192.0.2.3", message.NewHeartbeatRequest(1, nil, nil)))))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, to netip.Addr
		want     string
	}{
		{want: "several conversations in the capture: SMF 192.0.2.1 with UPF 192.0.2.8, SMF 192.0.2.1 with UPF 192.0.2.9, SMF 192.0.2.2 with UPF 192.0.2.8: choose with from"},
		{from: addr("192.0.2.1"), want: "several conversations"},
		{from: addr("192.0.2.1"), to: addr("192.0.2.9")},
		{from: addr("192.0.2.2")},
		{from: addr("192.0.2.3"), want: "no such conversation"},
	} {
		v, err := c.Conversation(tt.from, tt.to)
		if tt.want == "" && (err != nil || v.SMF != tt.from || len(v.Exchanges) != 1) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v, %v: %+v, %v, want %q", tt.from, tt.to, v, err, tt.want)
		}
	}
	one, err := Read(bytes.NewReader(file(t, layers.LinkTypeRaw, 0, datagramOf("192.0.2.8", "192.0.2.3", message.NewHeartbeatRequest(1, nil, nil)))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Conversation(netip.Addr{}, netip.Addr{}); err == nil || !strings.Contains(err.Error(), "no request of an SMF") {
		t.Errorf("heartbeats only: %v", err)
	}
}

// FuzzRead: no file breaks the reader, or what plays it.
func FuzzRead(f *testing.F) {
	for _, name := range Names() { // no more than 20 frames of each, which have one of every kind
		var list [][]byte
		for _, m := range openTest(f, name).Messages {
			list = append(list, packet.Frame(packet.IPv4{Src: m.From, Dst: m.To}, packet.UDP{Sport: port, Dport: port}, packet.Payload{Data: m.Data}))
		}
		f.Add(file(f, layers.LinkTypeRaw, 0, list[max(0, len(list)-20):]...))
		f.Add(file(f, layers.LinkTypeRaw, 0, list[:20]...))
	}
	f.Add(ngFile(f, datagramOf("192.0.2.1", "192.0.2.8", deletion(1))))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range c.pairs() {
			v, err := c.Conversation(p.smf, p.upf)
			if err != nil {
				t.Fatalf("%+v: %v", p, err)
			}
			settings := Settings{Times: 3}
			tr, err := newTranslation(v, &settings, Ends{SMF: addr("192.0.2.20"), UPF: addr("192.0.2.21"), NodeID: "smf.example"})
			if err != nil {
				continue
			}
			for _, e := range v.Exchanges {
				s := &state{up: 1}
				m := tr.request(e.Request, 2, s)
				if e.Answer != nil {
					compareAnswer(e.Answer.Header, e.Request.Header, s, 1)
					s.learn(e.Request.Header, e.Answer.Header)
				}
				if len(m) < 8 {
					t.Errorf("%x from %x", m, e.Request.Data)
				}
			}
		}
	})
}
