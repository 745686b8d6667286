package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
)

// own is the interface by which the daemon's own packets come in: the loopback
// interface. Nobody else's frames come by it, so its port guards nothing; the other ports
// would refuse what comes from this node.
const own = 1

// InjectToUE sends an IP packet to a UE by its session's rules: as it is where a rule is
// found by the UE's address, otherwise in a G-PDU for the session's downlink TEID (N9).
// Session 0: not known.
func (d *DataPlane) InjectToUE(session uint64, packet []byte) error {
	frame, err := d.frameToUE(session, packet)
	if err == nil {
		err = d.injectOwn(frame)
	}
	if err != nil {
		return fmt.Errorf("inject to a UE of session %d: %w", session, err)
	}
	return nil
}

// InjectSteered sends an IP packet as the node steers packets to its destination.
func (d *DataPlane) InjectSteered(packet []byte) error {
	if len(packet) == 0 {
		return errors.New("there is no packet")
	}
	if err := d.injectOwn(frameOf(packet)); err != nil {
		return fmt.Errorf("inject a packet that is steered: %w", err)
	}
	return nil
}

// InjectGTPU sends a G-PDU or End Marker by the rules of its TEID, as if it had come to a
// GTP-U address of ours with that TOS and TTL.
func (d *DataPlane) InjectGTPU(message []byte, tos, ttl uint8) error {
	packet, err := d.toUs(message, tos, ttl)
	if err == nil {
		err = d.injectOwn(frameOf(packet))
	}
	if err != nil {
		return fmt.Errorf("inject a GTP-U message: %w", err)
	}
	return nil
}

func (d *DataPlane) injectOwn(frame []byte) error {
	if err := d.Ports.Ensure(own); err != nil {
		return err
	}
	return d.Inject(frame, own)
}

// ownMark is OWN_MARK of bpf/def/tables.h.
var ownMark = binary.NativeEndian.AppendUint32(nil, 0x6f776e66)

// Inject sends a frame through the data path as if it had come in on an interface. A frame
// for the private address of a UE behind a NAT is known by its mark: nobody else may send one.
func (d *DataPlane) Inject(frame []byte, ifindex int) error {
	if d.behindNAT(destination4(frame)) {
		return d.Frames.InjectWith(ownMark, frame, ifindex)
	}
	return d.Frames.Inject(frame, ifindex)
}

// behindNAT says whether an address is that of a UE behind a NAT.
func (d *DataPlane) behindNAT(a netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.settings.Want.NATs, func(n settings.NAT) bool { return n.Pool.Contains(a) })
}

// destination4 is the destination of an IPv4 frame; the zero Addr: it is none.
func destination4(frame []byte) netip.Addr {
	at := 12
	for len(frame) >= at+6 && (binary.BigEndian.Uint16(frame[at:]) == 0x8100 || binary.BigEndian.Uint16(frame[at:]) == 0x88a8) {
		at += 4
	}
	if len(frame) < at+22 || binary.BigEndian.Uint16(frame[at:]) != 0x0800 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(frame[at+18:]))
}

func (d *DataPlane) frameToUE(session uint64, packet []byte) ([]byte, error) {
	if len(packet) == 0 {
		return nil, errors.New("there is no packet")
	}
	teid := d.Sessions.DownlinkTEID(session)
	if teid == 0 {
		return frameOf(packet), nil
	}
	message, err := gtpu.AppendGPDU(nil, teid, gtpu.PDUSessionContainer{}, packet)
	if err != nil {
		return nil, err
	}
	if packet, err = d.toUs(message, 0, settings.DefaultHopLimit); err != nil {
		return nil, err
	}
	return frameOf(packet), nil
}

// frameOf puts an Ethernet header without addresses before an IP packet.
func frameOf(packet []byte) []byte {
	etherType := uint16(0x86dd)
	if packet[0]>>4 == 4 {
		etherType = 0x0800
	}
	return append(binary.BigEndian.AppendUint16(make([]byte, 12, 14+len(packet)), etherType), packet...)
}

// toUs is a packet with a GTP-U message to one of our GTP-U addresses. Nobody looks at the
// UDP checksum (docs/reference/semantics.md section 6).
func (d *DataPlane) toUs(message []byte, tos, ttl uint8) ([]byte, error) {
	d.mu.Lock()
	addresses := d.settings.Want.GTPUAddresses
	d.mu.Unlock()
	if len(addresses) == 0 {
		return nil, errors.New("there is no GTP-U address")
	}
	be := binary.BigEndian
	a, length := addresses[0], uint16(8+len(message))
	var b []byte // an IP header from and to our address, then UDP
	if a.Is4() {
		b = append(be.AppendUint16([]byte{0x45, tos}, 20+length), 0, 0, 0x40, 0, ttl, 17, 0, 0)
	} else {
		b = append(be.AppendUint16([]byte{0x60 | tos>>4, tos << 4, 0, 0}, length), 17, ttl)
	}
	b = append(append(b, a.AsSlice()...), a.AsSlice()...)
	if a.Is4() {
		be.PutUint16(b[10:], checksum.Of(b, 0))
	}
	b = be.AppendUint16(be.AppendUint16(b, gtpu.Port), gtpu.Port)
	return append(be.AppendUint16(be.AppendUint16(b, length), 0), message...), nil
}
