package rig

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// The numbers of protocols and EtherTypes in the frames.
const (
	TypeIPv4 = 0x0800
	TypeIPv6 = 0x86dd

	ProtoIPv4     = 4
	ProtoUDP      = 17
	ProtoIPv6     = 41
	ProtoRouting  = 43
	ProtoEthernet = 143
)

// Lengths of headers.
const (
	LenEthernet = 14
	LenIPv4     = 20
	LenIPv6     = 40
	LenUDP      = 8
	LenGTPU     = 8
	// of a PDU Session Container, with the header's options
	LenContainer = 8
)

// Want is what a frame that comes out must be.
type Want struct {
	EtherType   uint16
	Destination []byte // the start of the address
	protocol    uint8
	Payload     int // octets behind the IP header
}

// WantIPv4 describes an IPv4 packet to dst with so many octets behind its header.
func WantIPv4(dst netip.Addr, protocol uint8, payload int) Want {
	return Want{TypeIPv4, dst.AsSlice(), protocol, payload}
}

// WantIPv6 describes an IPv6 packet whose destination begins as the first octets of dst.
func WantIPv6(dst netip.Addr, octets int, next uint8, payload int) Want {
	return Want{TypeIPv6, dst.AsSlice()[:octets], next, payload}
}

// Check says what is wrong with a frame of `length` octets that starts with
// first.
func (w Want) Check(first []byte, length int) error {
	header, protocol, destination := offsets(w.EtherType)
	if len(first) < LenEthernet+header {
		return fmt.Errorf("it has %d octets: too few", len(first))
	}
	ip := first[LenEthernet:]
	switch {
	case binary.BigEndian.Uint16(first[12:]) != w.EtherType:
		return fmt.Errorf("its type is %#x, want %#x", first[12:14], w.EtherType)
	case length != LenEthernet+header+w.Payload:
		return fmt.Errorf("it has %d octets, want %d", length, LenEthernet+header+w.Payload)
	case ip[protocol] != w.protocol:
		return fmt.Errorf("it carries protocol %d, want %d", ip[protocol], w.protocol)
	case !bytes.HasPrefix(ip[destination:], w.Destination):
		return fmt.Errorf("it goes to %x, want %x", ip[destination:][:len(w.Destination)], w.Destination)
	}
	return nil
}

// offsets are the length of an IP header, and where protocol and destination are in it.
func offsets(etherType uint16) (header, protocol, destination int) {
	if etherType == TypeIPv6 {
		return LenIPv6, 6, 24
	}
	return LenIPv4, 9, 16
}

// WantLike is what must come out where nothing but Ethernet addresses changes.
func WantLike(frame []byte) Want {
	etherType, ip := binary.BigEndian.Uint16(frame[12:]), frame[LenEthernet:]
	header, protocol, _ := offsets(etherType)
	return Want{EtherType: etherType, protocol: ip[protocol], Payload: len(ip) - header}
}
