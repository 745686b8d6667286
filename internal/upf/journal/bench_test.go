package journal

import (
	"encoding/binary"
	"testing"
)

// BenchmarkAppend is a session's record.
func BenchmarkAppend(b *testing.B) {
	j, _, err := Open(b.TempDir(), []byte("boot"), func(Record) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 180)
	for i := uint64(1); b.Loop(); i++ {
		if err := j.Append(Record{Kind: Session, SEID: i, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads a million sessions.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	j, _, err := Open(dir, []byte("boot"), func(Record) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 180)
	for i := range uint64(1_000_000) {
		binary.LittleEndian.PutUint64(body, i)
		if err := j.Append(Record{Kind: Session, SEID: i + 1, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if _, lost, err := Open(dir, []byte("boot"), func(Record) error { n++; return nil }); err != nil || lost != nil || n != 1_000_000 {
			b.Fatal(n, lost, err)
		}
	}
}
