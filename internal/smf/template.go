package smf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/wmnsk/go-pfcp/ie"
)

// template is a message with the places in it that are another session's in
// another message. Messages are made by copying it and writing these: it costs
// a tenth of a microsecond in place of ten.
type template struct {
	message []byte
	fields  []field
}

// field is a place in a template, and what writes its value.
type field struct {
	append func(b []byte, id *identity) []byte
	offset int
}

// fields write what differs between sessions.
var fields = []func(b []byte, id *identity) []byte{
	func(b []byte, id *identity) []byte { return binary.BigEndian.AppendUint64(b, id.cpSEID) },
	func(b []byte, id *identity) []byte { return binary.BigEndian.AppendUint32(b, uint32(id.cpSEID)) }, // the TEID of packets to the SMF
	func(b []byte, id *identity) []byte { return append(b, id.ue4[:]...) },
	func(b []byte, id *identity) []byte { return append(b, id.ue6[:]...) },
	func(b []byte, id *identity) []byte { return binary.BigEndian.AppendUint32(b, id.access.teid) },
	func(b []byte, id *identity) []byte { return appendAddr(b, id.access.addr) },
	func(b []byte, id *identity) []byte { return binary.BigEndian.AppendUint32(b, id.core.teid) },
	func(b []byte, id *identity) []byte { return appendAddr(b, id.core.addr) },
	func(b []byte, id *identity) []byte { return binary.BigEndian.AppendUint32(b, id.localAccess) },
	func(b []byte, id *identity) []byte { return binary.BigEndian.AppendUint32(b, id.localCore) },
}

func appendAddr(b []byte, a netip.Addr) []byte {
	b, _ = a.AppendBinary(b) // an address without a zone has no error
	return b
}

// marks are two sessions of no group: their values stand nowhere in a message
// by chance, and each field's first octets differ, so that the places are those
// where all of the first mark's value stands.
func marks(id *identity) (first, second identity) {
	mark := func(id identity, x byte) identity {
		at := func(k byte) uint32 { return 0xe1000000 | uint32(x)<<16 | uint32(k)<<8 | 0x5b }
		out := identity{cpSEID: uint64(at(1))<<32 | uint64(at(2)), localAccess: at(8), localCore: at(9)}
		binary.BigEndian.PutUint32(out.ue4[:], at(3))
		out.ue6 = [16]byte{0: 0x20, 1: 0x01, 2: 0xe1, 5: x, 7: 0x77, 15: 4}
		out.access = endpoint{markAddr(id.access.addr, at(5)), at(6)}
		out.core = endpoint{markAddr(id.core.addr, at(7)), at(10)}
		return out
	}
	return mark(*id, 0xa5), mark(*id, 0xc7)
}

// markAddr is an address of the same family, or none.
func markAddr(like netip.Addr, n uint32) netip.Addr {
	if !like.IsValid() {
		return like
	}
	b := make([]byte, like.BitLen()/8)
	binary.BigEndian.PutUint32(b, n)
	a, _ := netip.AddrFromSlice(b) // as long as it has to be
	return a
}

// newTemplate finds the places of what differs in the message that build makes,
// and proves it with another session's.
func newTemplate(e encoder, kind uint8, id identity, build func(*encoder) []*ie.IE) (*template, error) {
	encode := func(id identity) ([]byte, error) {
		e.id = id
		return e.message(kind, build(&e)...)
	}
	first, second := marks(&id)
	t := &template{}
	var err error
	if t.message, err = encode(first); err != nil {
		return nil, err
	}
	if len(t.message) > maxMessage {
		return nil, fmt.Errorf("a message of %d octets: a datagram holds %d: have fewer filters", len(t.message), maxMessage)
	}
	for _, write := range fields {
		value := write(nil, &first)
		for at := 0; ; {
			i := bytes.Index(t.message[at:], value)
			if i < 0 || len(value) == 0 {
				break
			}
			t.fields = append(t.fields, field{write, at + i})
			at += i + len(value)
		}
	}
	want, err := encode(second)
	if err != nil {
		return nil, err
	}
	if got := t.fill(nil, &second); !bytes.Equal(got, want) {
		return nil, fmt.Errorf("a template of message type %d does not hold for two sessions", kind)
	}
	return t, nil
}

// fill writes session id's message into b, and returns it as long as it is.
func (t *template) fill(b []byte, id *identity) []byte {
	b = append(b[:0], t.message...)
	for _, f := range t.fields {
		f.append(b[:f.offset], id) // in place: b is longer
	}
	return b
}

// maxMessage is what one UDP datagram over IPv4 holds.
const maxMessage = 65507
