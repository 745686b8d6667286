package journal

import (
	"encoding/binary"
	"hash/crc32"
)

// Kind says what a Record is about.
type Kind uint8

// The kinds of records. Their values are on disk, except Damage.
const (
	header  Kind = iota // which boot, and which layout
	Session             // a session and its usage
	Usage               // a session's usage alone
	Taken               // the SMF has taken the session's pending reports
	Delete              // the session is gone
	State               // of the N4 server
	Slice               // the index of a slice
	end                 // the snapshot is whole
	// Damage stands for octets that are no record. Body says where they are. SEID is
	// the session whose record was there, or 0 if nothing is lost.
	Damage
)

// ofSession says that a record is about a session.
func (k Kind) ofSession() bool { return k >= Session && k <= Delete }

// Record is one entry of the journal. The user encodes Body.
type Record struct {
	Kind Kind
	SEID uint64
	Body []byte
}

// A record is a head, in little endian, and its body:
//
//	 0  mark: of the boot and the layout
//	 4  CRC-32C of the rest of the head
//	 8  CRC-32C of the body
//	12  kind (8 bits), length of the body (24 bits)
//	16  SEID
//	24  SEID of the record before it, or 0 if that is not about a session
//	32  number of the record in its file
const (
	recordHead = 36
	maxBody    = 1<<24 - 1
)

// head is the head of a record that was read.
type head struct {
	kind     Kind
	length   int64 // of the body
	seid     uint64
	previous uint64
	number   uint32
	sum      uint32 // of the body
}

// size is how long the record is.
func (h head) size() int64 { return recordHead + h.length }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chain is where a file has got to: each record names the one before it, so that
// the loss of one is known.
type chain struct {
	mark   uint32
	number uint32 // of the next record
	last   uint64 // what the next record has as previous
}

// newChain begins a file. Nobody who does not know boot can write a mark into the
// body of a record.
func newChain(boot []byte) chain { return chain{mark: crc32.Checksum(boot, castagnoli)} }

// append appends the next record of a file to b.
func (c *chain) append(b []byte, r Record) []byte {
	at := len(b)
	b = append(b, make([]byte, recordHead)...)
	b = append(b, r.Body...)
	h := b[at:]
	binary.LittleEndian.PutUint32(h, c.mark)
	binary.LittleEndian.PutUint32(h[8:], crc32.Checksum(r.Body, castagnoli))
	binary.LittleEndian.PutUint32(h[12:], uint32(len(r.Body))<<8|uint32(r.Kind))
	binary.LittleEndian.PutUint64(h[16:], r.SEID)
	binary.LittleEndian.PutUint64(h[24:], c.last)
	binary.LittleEndian.PutUint32(h[32:], c.number)
	binary.LittleEndian.PutUint32(h[4:], crc32.Checksum(h[8:recordHead], castagnoli))
	c.follow(head{kind: r.Kind, seid: r.SEID, number: c.number})
	return b
}

// follow goes on behind a record.
func (c *chain) follow(h head) {
	c.number, c.last = h.number+1, 0
	if h.kind.ofSession() {
		c.last = h.seid
	}
}

// parse reads a head. mark and sum say whether these are right.
func (c *chain) parse(b []byte) (h head, mark, sum bool) {
	mark = binary.LittleEndian.Uint32(b) == c.mark
	sum = binary.LittleEndian.Uint32(b[4:]) == crc32.Checksum(b[8:recordHead], castagnoli)
	word := binary.LittleEndian.Uint32(b[12:])
	return head{
		kind: Kind(word), length: int64(word >> 8), sum: binary.LittleEndian.Uint32(b[8:]),
		seid: binary.LittleEndian.Uint64(b[16:]), previous: binary.LittleEndian.Uint64(b[24:]),
		number: binary.LittleEndian.Uint32(b[32:]),
	}, mark, sum
}
