package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// errOther reports a file of another boot of the machine, or of another layout.
var errOther = errors.New("another boot or another version of culvert wrote it")

// window is how much of a file is read at once.
const window = 1 << 20

// reader reads the records of a file. It goes on behind octets that are no record.
type reader struct {
	file   file
	path   string
	boot   []byte
	size   int64 // of the file
	replay func(Record) error
	buffer []byte
	start  int64 // of buffer in the file

	chain    chain // behind the last record
	end      int64 // of the last record that is not damaged
	complete bool  // the record that ends a snapshot was there
	damaged  bool  // there are octets that are no record

	// broken is a record whose body is damaged, at an offset. Whether it was ever
	// answered shows what comes behind it.
	broken *head
	at     int64
}

// read passes the records to replay, in order. Where the record of a session is
// lost, it passes Damage. It returns an error if more may be lost.
func (r *reader) read() error {
	r.chain = newChain(r.boot)
	for from := int64(0); !r.complete; {
		at, h, err := r.find(from)
		if err != nil {
			return err
		}
		if at == r.size {
			return r.finish()
		}
		if from, err = r.record(at, h); err != nil {
			return err
		}
	}
	return nil
}

// record handles a record whose head is whole. It returns from where on to look for
// the next one.
func (r *reader) record(at int64, h head) (next int64, err error) {
	if int32(h.number-r.chain.number) < 0 { // an old one, which somebody has put there
		return at + 1, nil
	}
	if err := r.between(at, h); err != nil {
		return 0, err
	}
	b, err := r.octets(at, h.size())
	if err != nil {
		return 0, err
	}
	if int64(len(b)) < h.size() || crc32.Checksum(b[recordHead:h.size()], castagnoli) != h.sum {
		broken := h
		r.broken, r.at = &broken, at
		return at + recordHead, nil
	}
	body := b[recordHead:h.size():h.size()]
	switch h.kind {
	case header:
		if !bytes.Equal(body, r.boot) {
			return 0, errOther
		}
	case end:
		r.complete = true
	default:
		if err := r.replay(Record{h.kind, h.seid, body}); err != nil {
			return 0, err
		}
	}
	r.chain.follow(h)
	r.end = at + h.size()
	return r.end, nil
}

// between finds out what was between the last record and this one.
func (r *reader) between(at int64, h head) error {
	if b := r.broken; b != nil {
		r.broken = nil
		if b.number != h.number { // else its request was refused, and this is the next
			r.end = min(r.at+b.size(), at)
			if err := r.lose(*b, r.at, r.end); err != nil {
				return err
			}
			r.chain.follow(*b)
		}
	}
	switch missing := h.number - r.chain.number; {
	case missing == 0 && at > r.end:
		return r.damage(0, r.end, at)
	case missing == 0:
		return nil
	case missing == 1 && h.number == 1: // the header, of which this record's mark tells as much
		return r.damage(0, r.end, at)
	case missing == 1 && h.previous != 0:
		return r.damage(h.previous, r.end, at)
	}
	return r.unknown(r.end, at)
}

// finish finds out what is behind the last record.
func (r *reader) finish() error {
	switch rest := r.size - r.end; {
	case r.broken != nil && r.at+r.broken.size() > r.size: // nobody got an answer for it
		return r.damage(0, r.end, r.size)
	case r.broken != nil:
		return r.lose(*r.broken, r.at, r.size)
	case r.end == 0 && rest > recordHead+int64(len(r.boot)):
		return errOther
	case r.end == 0 || rest < recordHead:
		return r.damage(0, r.end, r.size)
	}
	b, err := r.octets(r.end, recordHead)
	if err != nil {
		return err
	}
	h, mark, sum := r.chain.parse(b)
	switch {
	case mark == sum || h.kind == Slice: // it is garbage, or an old record
		return r.damage(0, r.end, r.size)
	case h.seid == 0 && r.size-r.end == recordHead: // the end of a snapshot
		return r.damage(0, r.end, r.size)
	case h.seid == 0:
		return r.unknown(r.end, r.size)
	}
	return r.damage(h.seid, r.end, r.size) // most likely it is another field that is damaged
}

// lose notes that the record with a head is lost.
func (r *reader) lose(h head, from, to int64) error {
	switch {
	case h.kind.ofSession():
		return r.damage(h.seid, from, to)
	case h.kind == header || h.kind == Slice || h.kind == end:
		return r.damage(0, from, to)
	}
	return r.unknown(from, to)
}

// damage notes octets that are no record, and the session whose record they were.
func (r *reader) damage(seid uint64, from, to int64) error {
	if seid == 0 && from == to {
		return nil
	}
	r.damaged = true
	return r.replay(Record{Damage, seid, fmt.Appendf(nil, "%s, octets %d to %d", r.path, from, to)})
}

func (r *reader) unknown(from, to int64) error {
	r.damaged = true
	return fmt.Errorf("octets %d to %d are damaged: it is not known which sessions they are about", from, to)
}

// find finds the next whole head. at is the file's size if it has no more.
func (r *reader) find(from int64) (at int64, h head, err error) {
	mark := binary.LittleEndian.AppendUint32(nil, r.chain.mark)
	for at = from; at+recordHead <= r.size; {
		b, err := r.octets(at, recordHead)
		if err != nil {
			return 0, head{}, err
		}
		if h, mark, sum := r.chain.parse(b); mark && sum {
			return at, h, nil
		}
		if i := bytes.Index(b[1:], mark); i >= 0 {
			at += int64(1 + i)
		} else {
			at += int64(len(b) - len(mark) + 1) // it may begin here
		}
	}
	return r.size, head{}, nil
}

// octets returns what is at an offset of the file: n octets or more, or fewer at the
// file's end.
func (r *reader) octets(at, n int64) ([]byte, error) {
	n = min(n, r.size-at)
	if at >= r.start && at+n <= r.start+int64(len(r.buffer)) {
		return r.buffer[at-r.start:], nil
	}
	n = min(max(n, window), r.size-at)
	if int64(cap(r.buffer)) < n {
		r.buffer = make([]byte, n)
	}
	r.buffer, r.start = r.buffer[:n], at
	if _, err := r.file.ReadAt(r.buffer, at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return r.buffer, nil
}
