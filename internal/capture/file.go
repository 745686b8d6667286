package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Reader reads frames of a file, and says what layers each begins with; io.EOF: there is
// none more.
type Reader interface {
	Next() (frame []byte, info gopacket.CaptureInfo, link layers.LinkType, err error)
}

type pcapReader struct{ r *pcapgo.Reader }

func (p pcapReader) Next() ([]byte, gopacket.CaptureInfo, layers.LinkType, error) {
	frame, info, err := p.r.ReadPacketData()
	return frame, info, p.r.LinkType(), err
}

type ngReader struct{ r *pcapgo.NgReader }

func (n ngReader) Next() ([]byte, gopacket.CaptureInfo, layers.LinkType, error) {
	frame, info, err := n.r.ReadPacketData()
	if err != nil {
		return nil, info, 0, err
	}
	link, _ := info.AncillaryData[0].(layers.LinkType) // WantMixedLinkType puts it there
	return frame, info, link, nil
}

// How files begin.
const (
	ngMagic      = 0x0a0d0d0a
	microseconds = 0xa1b2c3d4
	nanoseconds  = 0xa1b23c4d
)

// Open reads the head of a pcap or pcapng file.
func Open(file io.Reader) (Reader, error) {
	b := bufio.NewReader(file)
	magic, err := b.Peek(4)
	if err != nil {
		return nil, errors.New("not a capture: it is shorter than the head of one: give a pcap or pcapng file")
	}
	if binary.BigEndian.Uint32(magic) == ngMagic {
		r, err := pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true})
		if err != nil {
			return nil, fmt.Errorf("not a pcapng file that can be read: %w", err)
		}
		return ngReader{r}, nil
	}
	r, err := pcapgo.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("not a capture: give a pcap or pcapng file: %w", err)
	}
	return pcapReader{r}, nil
}

// isCapture says whether a file begins as a capture does.
func isCapture(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	for _, magic := range []uint32{binary.BigEndian.Uint32(head), binary.LittleEndian.Uint32(head)} {
		if magic == ngMagic || magic == microseconds || magic == nanoseconds {
			return true
		}
	}
	return false
}

// Frames returns the Ethernet frames of a capture file or of a text, at most so many.
func Frames(file io.Reader, most int) ([][]byte, error) {
	b := bufio.NewReader(file)
	head, _ := b.Peek(4) // a shorter one is no capture
	if !isCapture(head) {
		text, err := io.ReadAll(io.LimitReader(b, mostText+1))
		if err != nil {
			return nil, err
		}
		return Text(string(text), most)
	}
	r, err := Open(b)
	if err != nil {
		return nil, err
	}
	var frames [][]byte
	for {
		frame, info, link, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && len(frames) == 0:
			return nil, errors.New("the capture has no packet")
		case errors.Is(err, io.EOF):
			return frames, nil
		case err != nil:
			return nil, fmt.Errorf("packet %d: the file is damaged or cut off here: %w", len(frames)+1, err)
		case link != layers.LinkTypeEthernet:
			return nil, fmt.Errorf("packet %d: it begins with %s, not with an Ethernet header: capture on one interface, not on \"any\"", len(frames)+1, link)
		case info.CaptureLength < info.Length:
			return nil, fmt.Errorf("packet %d: only %d of %d octets were captured: capture without a snapshot length (tcpdump -s 0)", len(frames)+1, info.CaptureLength, info.Length)
		case len(frames) == most:
			return nil, tooMany(most)
		}
		frames = append(frames, frame)
	}
}

func tooMany(most int) error {
	return fmt.Errorf("there are more than %d packets: leave out those that are not of interest", most)
}
