package traffic

import (
	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
)

// mixed spreads a number over 32 bits: the finalizer of MurmurHash3.
func mixed(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}

// numbersOf are the numbers of the packet with this sequence number, as
// bpf/traffic.c finds them.
func numbersOf(j trafficrun.Job, stream, sequence uint32) (numbers [trafficrun.Keys]uint32) {
	for i, k := range j.Keys {
		numbers[i] = numberOf(k, j.StreamBits, stream, sequence)
	}
	return numbers
}

func numberOf(k trafficrun.Key, bits int, stream, sequence uint32) uint32 {
	if k.Count <= 1 {
		return 0
	}
	at := sequence<<bits | stream
	if k.Lead {
		at = sequence
	}
	if k.Random {
		at = mixed(at ^ k.Salt)
	}
	if !k.Lead {
		return share(k.Random, at, k.Count)
	}
	// The stream's numbers are those that are it modulo the number of streams.
	if k.Random {
		at = mixed(at + stream)
	}
	return stream + share(k.Random, at, (k.Count-1-stream)>>bits+1)<<bits
}

// share is a number below count.
func share(random bool, at, count uint32) uint32 {
	if random {
		return uint32(uint64(at) * uint64(count) >> 32)
	}
	return at % count
}

// putNumber writes a number, and what checksums become by it.
func putNumber(frame []byte, p trafficrun.Place, number uint32) {
	at := frame[p.Offset:]
	from, to := be.Uint32(at), p.Base+number<<p.Shift
	be.PutUint32(at, to)
	followed(frame, p.IPChecksum, from, to, false)
	followed(frame, p.UDPChecksum, from, to, true)
	if p.OuterAdds {
		from, to = to, from
	}
	followed(frame, p.OuterChecksum, from, to, true)
}

// followed updates a checksum (RFC 1624). 0 would say that UDP has none.
func followed(frame []byte, offset, from, to uint32, udp bool) {
	if offset == 0 {
		return
	}
	at := frame[offset:]
	old := uint32(^be.Uint16(at))
	c := ^uint16(folded(old + folded(^from&0xffff+^from>>16) + folded(to&0xffff+to>>16)))
	if udp && c == 0 {
		c = 0xffff
	}
	be.PutUint16(at, c)
}

func folded(s uint32) uint32 {
	s = s&0xffff + s>>16
	return s&0xffff + s>>16
}

// putTag writes what stands at a packet's end: struct traffic_tag.
func putTag(frame []byte, trial, stream uint8, sequence, time uint32) {
	b := frame[len(frame)-lenTag:]
	b[0], b[1], b[2], b[3] = trial, stream, 0, 0
	be.PutUint32(b[4:], sequence)
	be.PutUint32(b[8:], time)
	be.PutUint16(b[2:], uint16(folded(trafficrun.TagSum+uint32(checksum.Of(b, 0)))))
}
