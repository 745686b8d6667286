package replay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/ip4defrag"
	"github.com/gopacket/gopacket/layers"

	"github.com/culvert-net/culvert/internal/capture"
	"github.com/culvert-net/culvert/internal/smf/wire"
)

// port is PFCP's.
const port = 8805

// Message is one PFCP message of a capture.
type Message struct {
	Frame    int // from 1, as others number them
	Time     time.Time
	From, To netip.Addr
	Data     []byte
	wire.Header
}

// Capture is what is of interest in a capture file.
type Capture struct {
	Messages []*Message
	Frames   int
	// Unreadable are frames on PFCP's port that hold no PFCP.
	Unreadable []int
}

// Read reads a pcap or pcapng file.
func Read(file io.Reader) (*Capture, error) {
	s, err := capture.Open(file)
	if err != nil {
		return nil, err
	}
	c, fragments := &Capture{}, ip4defrag.NewIPv4Defragmenter()
	for {
		frame, info, link, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		c.Frames++
		if err != nil {
			return nil, fmt.Errorf("frame %d: the file is damaged or cut off here: %w", c.Frames, err)
		}
		from, to, payload := datagram(frame, link, fragments)
		if from.Port() != port && to.Port() != port {
			continue
		}
		if info.CaptureLength < info.Length {
			return nil, fmt.Errorf("frame %d: only %d of %d octets were captured: capture without a snapshot length (tcpdump -s 0)", c.Frames, info.CaptureLength, info.Length)
		}
		c.add(Message{Frame: c.Frames, Time: info.Timestamp, From: from.Addr(), To: to.Addr()}, payload)
	}
	if len(c.Messages) == 0 {
		return nil, fmt.Errorf("no PFCP (UDP port %d) in %d frames: capture on N4", port, c.Frames)
	}
	return c, nil
}

// add takes in the messages of a datagram: several if each but the last says that
// another one follows (FO).
func (c *Capture) add(m Message, payload []byte) {
	for {
		h, ok := wire.ParseHeader(payload)
		if !ok || !wire.Each(h.Payload, func(uint16, []byte) {}) {
			c.Unreadable = append(c.Unreadable, m.Frame)
			return
		}
		end := 4 + int(binary.BigEndian.Uint16(payload[2:]))
		one := m
		one.Data = slices.Clone(payload[:end])
		one.Header, _ = wire.ParseHeader(one.Data)
		c.Messages = append(c.Messages, &one)
		const follows = 4
		if payload[0]&follows == 0 {
			return
		}
		payload = payload[end:]
	}
}

// datagram is the outermost UDP of a frame; none: ports of 0.
func datagram(frame []byte, link layers.LinkType, fragments *ip4defrag.IPv4Defragmenter) (from, to netip.AddrPort, payload []byte) {
	var src, dst netip.Addr
	for _, layer := range gopacket.NewPacket(frame, link, gopacket.NoCopy).Layers() {
		switch l := layer.(type) {
		case *layers.IPv4:
			src, dst = address(l.SrcIP), address(l.DstIP)
			if l.Flags&layers.IPv4MoreFragments == 0 && l.FragOffset == 0 {
				continue
			}
			whole, err := fragments.DefragIPv4(l)
			var udp layers.UDP
			if err != nil || whole == nil || whole.Protocol != layers.IPProtocolUDP || udp.DecodeFromBytes(whole.Payload, gopacket.NilDecodeFeedback) != nil {
				return from, to, nil
			}
			return netip.AddrPortFrom(src, uint16(udp.SrcPort)), netip.AddrPortFrom(dst, uint16(udp.DstPort)), udp.Payload
		case *layers.IPv6:
			src, dst = address(l.SrcIP), address(l.DstIP)
		case *layers.UDP:
			return netip.AddrPortFrom(src, uint16(l.SrcPort)), netip.AddrPortFrom(dst, uint16(l.DstPort)), l.Payload
		}
	}
	return from, to, nil
}

func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b) // a header's field has 4 or 16 octets
	return a.Unmap()
}
