package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Kind says what a Record is about.
type Kind uint8

// The kinds of records. Their values are on disk.
const (
	header  Kind = iota // which boot, and which layout
	Session             // a session and its usage
	Usage               // a session's usage alone
	Taken               // the SMF has taken the session's pending reports
	Delete              // the session is gone
	State               // of the N4 server
	Slice               // the index of a slice
	end                 // the snapshot is whole
)

// Record is one entry of the journal. The user encodes Body.
type Record struct {
	Kind Kind
	SEID uint64
	Body []byte
}

const (
	recordHead = 8 // length, CRC-32C
	maxRecord  = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendRecord(b []byte, r Record) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(r.Kind))
	b = binary.AppendUvarint(b, r.SEID)
	b = append(b, r.Body...)
	payload := b[at+recordHead:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(payload, castagnoli))
	return b
}

var (
	// errTorn reports that the process died while it wrote the last record.
	errTorn    = errors.New("the last record is incomplete")
	errDamaged = errors.New("a record of the journal is damaged")
)

// readRecord reads the next record, of size octets. It returns io.EOF at the end of the file and
// errTorn for an incomplete last record.
func readRecord(r *bufio.Reader) (record Record, size int64, err error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errTorn
		}
		return Record{}, 0, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxRecord {
		return Record{}, 0, errDamaged
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return Record{}, 0, errTorn
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return Record{}, 0, errDamaged
	}
	seid, used := binary.Uvarint(payload[1:])
	if used <= 0 {
		return Record{}, 0, errDamaged
	}
	return Record{Kind(payload[0]), seid, payload[1+used:]}, recordHead + int64(n), nil
}
