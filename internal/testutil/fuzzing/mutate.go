package fuzzing

import "fmt"

// Mutation is one change of a frame, with its name.
type Mutation struct {
	Name  string
	Apply func([]byte) []byte
}

// Mutations are none or a few random changes for a frame of this length.
func (s Source) Mutations(length int) []Mutation {
	var list []Mutation
	for range pick(s, 0, 1, 1, 1, 2, 4) {
		list = append(list, s.mutation(length))
	}
	if len(list) > 0 && !s.chance(8) { // others with IPv4 end early
		list = append(list, Mutation{"the IPv4 header's checksum is right", sumIPv4})
	}
	return list
}

// sumIPv4 makes the checksum of the outermost header right, if that is IPv4.
func sumIPv4(b []byte) []byte {
	const vlan, sVLAN, ipv4 = 0x8100, 0x88a8, 0x0800
	kind := 12
	for kind+6 <= len(b) && (be.Uint16(b[kind:]) == vlan || be.Uint16(b[kind:]) == sVLAN) {
		kind += 4
	}
	if kind+22 > len(b) || be.Uint16(b[kind:]) != ipv4 {
		return b
	}
	ip := b[kind+2:]
	header := int(ip[0]&15) * 4
	if header < 20 || header > len(ip) {
		return b
	}
	sum := uint32(0)
	be.PutUint16(ip[10:], 0)
	for at := 0; at < header; at += 2 {
		sum += uint32(be.Uint16(ip[at:]))
	}
	sum = sum>>16 + sum&0xffff
	be.PutUint16(ip[10:], ^uint16(sum>>16+sum))
	return b
}

// Mutate applies changes to a copy.
func Mutate(frame []byte, list []Mutation) []byte {
	frame = append([]byte{}, frame...)
	for _, m := range list {
		frame = m.Apply(frame)
	}
	return frame
}

// mutation prefers the headers, and values that mean something there.
func (s Source) mutation(length int) Mutation {
	at := s.IntN(min(length, pick(s, 62, 62, 120, length)))
	value := byte(pick(s, 0, 1, 2, 3, 4, 5, 6, 17, 41, 43, 44, 58, 60, 143, 0x45, 0x60, 0x85, 0xff, s.IntN(256)))
	switch s.IntN(10) {
	case 0, 1:
		bit := byte(1) << s.IntN(8)
		return set(fmt.Sprintf("bit %#02x at %d", bit, at), at, func(b []byte) { b[at] ^= bit })
	case 2, 3, 4:
		return set(fmt.Sprintf("%#02x at %d", value, at), at, func(b []byte) { b[at] = value })
	case 5, 6:
		at &^= 1
		change := uint16(pick(s, 1, -1, 8, -8, 4, -4, 20, -20, s.IntN(65536)))
		return set(fmt.Sprintf("word at %d + %#04x", at, change), at+1, func(b []byte) {
			be.PutUint16(b[at:], be.Uint16(b[at:])+change)
		})
	case 7:
		n := s.upTo(14, length)
		return Mutation{fmt.Sprintf("cut to %d", n), func(b []byte) []byte { return b[:min(n, len(b))] }}
	case 8:
		n := s.upTo(1, 40)
		return Mutation{fmt.Sprintf("%d octets of padding", n), func(b []byte) []byte { return append(b, make([]byte, n)...) }}
	}
	return s.moved(length)
}

// moved copies octets over others, as from one header to another.
func (s Source) moved(length int) Mutation {
	from, to, n := s.IntN(length), s.IntN(min(length, 120)), s.upTo(1, 16)
	return Mutation{fmt.Sprintf("%d octets from %d to %d", n, from, to), func(b []byte) []byte {
		if from+n <= len(b) && to+n <= len(b) {
			copy(b[to:to+n], b[from:from+n])
		}
		return b
	}}
}

// set is a change in place, where the frame reaches that far.
func set(name string, last int, change func([]byte)) Mutation {
	return Mutation{name, func(b []byte) []byte {
		if last < len(b) {
			change(b)
		}
		return b
	}}
}
