package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// The numbers of protocols and EtherTypes in the frames.
const (
	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd

	protoIPv4     = 4
	protoUDP      = 17
	protoIPv6     = 41
	protoRouting  = 43
	protoEthernet = 143
)

// Lengths of headers.
const (
	lenEthernet = 14
	lenIPv4     = 20
	lenIPv6     = 40
	lenUDP      = 8
	lenGTPU     = 8
	// of a PDU Session Container, with the header's options
	lenContainer = 8
)

// want is what a frame that comes out must be.
type want struct {
	etherType   uint16
	destination []byte // the start of the address
	protocol    uint8
	payload     int // octets behind the IP header
}

func wantIPv4(dst netip.Addr, protocol uint8, payload int) want {
	return want{typeIPv4, dst.AsSlice(), protocol, payload}
}

func wantIPv6(dst netip.Addr, octets int, next uint8, payload int) want {
	return want{typeIPv6, dst.AsSlice()[:octets], next, payload}
}

// check says what is wrong with a frame of `length` octets that starts with
// first.
func (w want) check(first []byte, length int) error {
	header, protocol, destination := lenIPv4, 9, 16
	if w.etherType == typeIPv6 {
		header, protocol, destination = lenIPv6, 6, 24
	}
	if len(first) < lenEthernet+header {
		return fmt.Errorf("it has %d octets: too few", len(first))
	}
	ip := first[lenEthernet:]
	switch {
	case binary.BigEndian.Uint16(first[12:]) != w.etherType:
		return fmt.Errorf("its type is %#x, want %#x", first[12:14], w.etherType)
	case length != lenEthernet+header+w.payload:
		return fmt.Errorf("it has %d octets, want %d", length, lenEthernet+header+w.payload)
	case ip[protocol] != w.protocol:
		return fmt.Errorf("it carries protocol %d, want %d", ip[protocol], w.protocol)
	case !bytes.HasPrefix(ip[destination:], w.destination):
		return fmt.Errorf("it goes to %x, want %x", ip[destination:][:len(w.destination)], w.destination)
	}
	return nil
}

// wantLike is what must come out where nothing but Ethernet addresses changes.
func wantLike(frame []byte) want {
	w := want{etherType: binary.BigEndian.Uint16(frame[12:])}
	ip := frame[lenEthernet:]
	if w.etherType == typeIPv6 {
		w.protocol, w.payload = ip[6], len(ip)-lenIPv6
	} else {
		w.protocol, w.payload = ip[9], len(ip)-lenIPv4
	}
	return w
}
