package slowpath

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/culvert-net/culvert/internal/checksum"
)

// FuzzHandle hands up arbitrary records: nothing may go wrong, memory stays
// bounded, and what goes out is sound.
func FuzzHandle(f *testing.F) {
	kinds := []Kind{0, Reassemble, Fragment, ICMPError, ErrorIndication, FragmentOuter}
	for kind := range uint8(len(kinds)) {
		f.Add(kind, uint8(3), uint8(0), uint32(600), uint16(14), whole6(f, 1400))
		f.Add(kind, uint8(2), uint8(0), uint32(600), uint16(14), whole4(f, 1400))
		f.Add(kind, uint8(4), uint8(4), uint32(40), uint16(14), part(whole6(f, 1400), 14, 0, 800, 1).Data)
		f.Add(kind, uint8(4), uint8(4), uint32(40), uint16(14), part(whole4(f, 1400), 14, 800, 1408, 1).Data)
	}
	f.Add(uint8(2), uint8(0), uint8(0), uint32(300), uint16(14+40+24), outers(f)["SRH"](innerPacket(f, 700, nil)))
	f.Add(uint8(2), uint8(0), uint8(0), uint32(300), uint16(14+20+8+16), outers(f)["GTP-U over IPv4"](innerPacket(f, 700, nil)))
	b := newBench(Options{MaxBytes: 1 << 16, MaxDatagrams: 16})
	f.Fuzz(func(t *testing.T, kind, errorType, code uint8, info uint32, l3 uint16, data []byte) {
		if len(data) > 2048 {
			data = data[:2048] // as many as the data path hands up
		}
		of := kinds[int(kind)%len(kinds)]
		b.injected, b.ifindex, b.sent = nil, nil, nil
		before := bytes.Clone(data)
		b.Handle(Packet{Kind: of, Type: errorType, Code: code, Info: info, L3: int(l3), Data: data})
		if b.reassembler.bytes > 1<<16 || len(b.reassembler.table) > 16 {
			t.Fatalf("%d bytes in %d datagrams", b.reassembler.bytes, len(b.reassembler.table))
		}
		held := 0
		for _, u := range b.reassembler.table {
			held += u.size
		}
		if held != b.reassembler.bytes {
			t.Fatalf("%d bytes are held, %d counted", held, b.reassembler.bytes)
		}
		for _, frame := range b.injected {
			if len(frame) > 3400 {
				t.Fatalf("a frame of %d bytes", len(frame))
			}
			if of == Reassemble && !sound(frame[l3:]) {
				t.Fatalf("unsound packet %x", frame[l3:])
			}
			if of == Fragment && (len(frame)-int(l3) > int(info) || !sound(frame[l3:])) {
				t.Fatalf("unsound fragment %x for MTU %d", frame[l3:], info)
			}
		}
		for _, p := range b.sent {
			if most := map[bool]int{false: maxICMPv6, true: int(info)}[of == FragmentOuter]; !sound(p) || len(p) > most {
				t.Fatalf("unsound error or fragment %x", p)
			}
		}
		if of != Fragment && of != FragmentOuter && !bytes.Equal(before, data) {
			t.Fatal("the record was changed")
		}
	})
}

// sound says that lengths and IPv4 header checksum are right.
func sound(p []byte) bool {
	if ip, whole, ok := parseIPv4(p); ok {
		return whole && len(ip) == len(p) && checksum.Of(ip[:ip.headerLength()], 0) == 0
	}
	ip, whole, ok := parseIPv6(p)
	return ok && whole && len(ip) == len(p)
}

// FuzzReassembly hands fragments of one datagram up in any order, some twice,
// some that contradict: what comes out is the datagram, or nothing; and without
// contradiction, once all is there, it does come out.
func FuzzReassembly(f *testing.F) {
	f.Add(false, []byte{0, 10, 10, 20})
	f.Add(true, []byte{10, 20, 0, 10})
	f.Add(true, []byte{0, 10, 0, 10, 10, 20})
	f.Add(false, []byte{0, 10, 5, 20})
	f.Add(true, []byte{0, 0x85, 5, 20})
	f.Fuzz(func(t *testing.T, v4 bool, plan []byte) {
		const units = 20 // of 8 bytes
		frame := whole6(t, units*8-8)
		head := 14 + 40
		if v4 {
			frame, head = whole4(t, units*8-8), 14+20
		}
		b := newBench(Options{})
		var covered [units]int
		var given []span
		contradiction := false
		for ; len(plan) >= 2 && len(b.injected) == 0; plan = plan[2:] {
			from, to := int(plan[0])%units, int(plan[1]&0x7f)%(units+1)
			if from >= to || to-from == units {
				continue
			}
			p := part(frame, 14, from*8, to*8, 1)
			wrong := plan[1]&0x80 != 0
			if wrong {
				p.Data[len(p.Data)-1] ^= 0x55
			}
			contradiction = contradiction || conflicts(given, span{from, to, wrong})
			given = append(given, span{from, to, wrong})
			for i := from; i < to; i++ {
				covered[i]++
			}
			b.handle(p)
		}
		complete := true
		for _, n := range covered {
			complete = complete && n > 0
		}
		anyWrong := false
		for _, s := range given {
			anyWrong = anyWrong || s.wrong
		}
		switch {
		case len(b.injected) > 0 && (contradiction || !complete):
			t.Fatalf("whole by %v", given)
		case len(b.injected) == 0 && complete && !contradiction:
			t.Fatalf("not whole by %v", given)
		case len(b.injected) > 0 && !anyWrong && !bytes.Equal(b.injected[0][head:], frame[head:]):
			t.Fatalf("another datagram by %v", given)
		case len(b.injected) > 0 && binary.BigEndian.Uint16(b.injected[0][12:]) != binary.BigEndian.Uint16(frame[12:]):
			t.Fatal("another EtherType")
		}
	})
}

// span is a fragment in units of 8 bytes; wrong: with other bytes.
type span struct {
	from, to int
	wrong    bool
}

// conflicts says that two fragments overlap without being the same.
func conflicts(given []span, s span) bool {
	for _, g := range given {
		if g.from < s.to && s.from < g.to && g != s {
			return true
		}
	}
	return false
}
