package traffic

import (
	"errors"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/srv6"
)

// verify looks at every length and checksum of a frame without FCS, from the
// outside in, and says what is wrong. What is behind a UDP port other than
// GTP-U's and VXLAN's is the user's.
func verify(frame []byte) error {
	if len(frame) < lenEthernet {
		return fmt.Errorf("the frame has %d octets", len(frame))
	}
	if kind := be.Uint16(frame[12:]); kind != typeIPv4 && kind != typeIPv6 {
		return nil
	}
	if err := verifyEthernet(frame, len(frame) <= minFrame-lenFCS); err != nil {
		return err
	}
	// Another decoder must read the same.
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	if e := p.ErrorLayer(); e != nil && p.Layer(layers.LayerTypeIPv6Routing) == nil {
		return fmt.Errorf("%s does not decode: %w", e.LayerType(), e.Error())
	}
	return nil
}

func verifyEthernet(frame []byte, padded bool) error {
	switch b := frame[lenEthernet:]; be.Uint16(frame[12:]) {
	case typeIPv4:
		return verifyIPv4(b, padded)
	case typeIPv6:
		return verifyIPv6(b, padded)
	}
	return nil
}

// exactly wants a length that is all there is, or less where the rest is the
// Ethernet frame's padding.
func exactly(what string, says int, b []byte, padded bool) ([]byte, error) {
	if says > len(b) || says < len(b) && !padded {
		return nil, fmt.Errorf("%s says %d octets, there are %d", what, says, len(b))
	}
	return b[:says], nil
}

func verifyIPv4(b []byte, padded bool) error {
	if len(b) < lenIPv4 || b[0] != 0x45 {
		return errors.New("the IPv4 header is cut short, or has options")
	}
	b, err := exactly("the IPv4 header", int(be.Uint16(b[2:])), b, padded)
	if err != nil {
		return err
	}
	if len(b) < lenIPv4 {
		return errors.New("the IPv4 header says less than its own length")
	}
	if c := checksum.Of(b[:lenIPv4], 0); c != 0 {
		return wrongChecksum("IPv4 header", ^c)
	}
	return verifyProtocol(b, int(b[9]), b[lenIPv4:])
}

func verifyIPv6(b []byte, padded bool) error {
	if len(b) < lenIPv6 || b[0]>>4 != 6 {
		return errors.New("the IPv6 header is cut short, or of another version")
	}
	b, err := exactly("the IPv6 header", lenIPv6+int(be.Uint16(b[4:])), b, padded)
	if err != nil {
		return err
	}
	next, payload := int(b[6]), b[lenIPv6:]
	if next != protoRouting {
		return verifyProtocol(b, next, payload)
	}
	header, ok := srv6.ParseSRH(payload)
	if !ok {
		return errors.New("the SRH does not hold together")
	}
	if left, last := int(header.SegmentsLeft()), int(header.LastEntry()); left > last+1 {
		return fmt.Errorf("the SRH has %d segments left, and its last entry is %d", left, last)
	}
	return verifyProtocol(b, int(header.NextHeader()), payload[lenSRH+8*int(payload[1]):])
}

// verifyProtocol looks at what an IP header carries.
func verifyProtocol(ip []byte, protocol int, b []byte) error {
	switch protocol {
	case protoIPv4:
		return verifyIPv4(b, false)
	case protoIPv6:
		return verifyIPv6(b, false)
	case protoUDP:
		return verifyUDP(ip, b)
	}
	return nil
}

func verifyUDP(ip, b []byte) error {
	if len(b) < lenUDP {
		return errors.New("the UDP header is cut short")
	}
	if _, err := exactly("the UDP header", int(be.Uint16(b[4:])), b, false); err != nil {
		return err
	}
	switch none := be.Uint16(b[6:]) == 0; {
	case none && ip[0]>>4 == 6:
		return errors.New("UDP over IPv6 has no checksum")
	case !none:
		addresses := ip[8:40] // of the pseudo-header
		if ip[0]>>4 == 4 {
			addresses = ip[12:20]
		}
		if c := checksum.Of(b, gopacket.ComputeChecksum(addresses, protoUDP+uint32(len(b)))); c != 0 {
			return wrongChecksum("UDP", ^c)
		}
	}
	switch be.Uint16(b[2:]) {
	case gtpuPort:
		return verifyGTPU(b[lenUDP:])
	case vxlanPort:
		if b = b[lenUDP:]; len(b) < lenVXLAN+lenEthernet || b[0] != 8 {
			return errors.New("the VXLAN header is cut short, or names no network")
		}
		return verifyEthernet(b[lenVXLAN:], false)
	}
	return nil
}

func verifyGTPU(b []byte) error {
	h, ok := gtpu.ParseHeader(b)
	if !ok {
		return errors.New("the GTP-U header does not hold together")
	}
	if _, err := exactly("the GTP-U header", lenGTPU+int(be.Uint16(b[2:])), b, false); err != nil {
		return err
	}
	tpdu := h.Payload()
	if len(tpdu) == 0 {
		return errors.New("the G-PDU is empty")
	}
	if tpdu[0]>>4 == 4 {
		return verifyIPv4(tpdu, false)
	}
	return verifyIPv6(tpdu, false)
}

// wrongChecksum says that a sum is not all ones.
func wrongChecksum(of string, s uint16) error {
	return checksumError(fmt.Sprintf("the %s checksum is wrong: the sum is %#04x", of, s))
}

// checksumError is a wrong checksum.
type checksumError string

func (e checksumError) Error() string { return string(e) }
