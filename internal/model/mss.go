package model

// clampMSS is section 7's "MSS", on the T-PDU in a finished packet that goes to
// where the MTU is `egress`; 0: not known. A UDP checksum around it stays: TCP's
// own makes up for what changes.
func (j *journey) clampMSS(o outbound, egress int) {
	carried, around := o.tpdu, j.around
	switch {
	case carried != nil && j.m.network.Config.GTPU.MSSClamp:
		around = o.tpduL3 - j.l3
		if version(j.packet) == 4 {
			around = 44 // as if it had a container
		}
	case carried == nil && j.session && j.m.network.MSSClamp:
		carried = o.quoted
	default:
		return
	}
	room := 0
	if egress != 0 {
		room = egress - (len(o.packet) - len(carried))
	}
	if back := max(j.port.MTU-around, 1); j.port.MTU != 0 && (egress == 0 || back < room) {
		room = back
	}
	tpdu := o.packet[len(o.packet)-o.trailing-len(carried):][:len(carried)]
	tcp, headers := synOf(tpdu)
	at := mssOption(tcp)
	if most := room - headers; at != 0 && most >= 1 && int(be.Uint16(tcp[at:])) > most {
		change(tcp, at, byte(most>>8), 16)
		change(tcp, at+1, byte(most), 16)
	}
}

// synOf is the TCP header, with its options, of a packet that begins a
// connection, and the length of IP and TCP headers without options; nil: it is
// none.
func synOf(p []byte) (tcp []byte, headers int) {
	protocol, tcp := upperLayer(p)
	headers = 60
	if version(p) == 4 {
		headers = 40
	}
	const syn = 0x02
	if protocol != protoTCP || version(p) == 4 && v4(p).fragment() || len(tcp) < 20 || tcp[13]&syn == 0 {
		return nil, 0
	}
	length := int(tcp[12]>>4) * 4
	if length < 20 || length > len(tcp) {
		return nil, 0
	}
	return tcp[:length], headers
}

// mssOption is where the value of a header's MSS option is; 0: it has none that
// can be found.
func mssOption(tcp []byte) int {
	const end, nop, mss = 0, 1, 2
	for at := 20; at < len(tcp); {
		switch kind := tcp[at]; {
		case kind == end:
			return 0
		case kind == nop:
			at++
			continue
		case at+1 == len(tcp) || tcp[at+1] < 2 || at+int(tcp[at+1]) > len(tcp):
			return 0
		case kind == mss && tcp[at+1] != 4:
			return 0
		case kind == mss:
			return at + 2
		}
		at += int(tcp[at+1])
	}
	return 0
}
