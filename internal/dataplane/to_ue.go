package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
)

// InjectToUE sends an IP packet to a UE by its session's rules, as if it had come
// in on an interface: as it is where a rule is found by the UE's address,
// otherwise in a G-PDU for the session's downlink TEID (N9). Session 0: not known.
func (d *DataPlane) InjectToUE(session uint64, packet []byte, ifindex int) error {
	frame, err := d.frameToUE(session, packet, ifindex)
	if err != nil {
		return fmt.Errorf("inject to a UE of session %d: %w", session, err)
	}
	return d.Frames.Inject(frame, ifindex)
}

func (d *DataPlane) frameToUE(session uint64, packet []byte, ifindex int) ([]byte, error) {
	if len(packet) == 0 {
		return nil, errors.New("there is no packet")
	}
	if teid := d.Sessions.DownlinkTEID(session); teid != 0 {
		var err error
		if packet, err = d.gpduToUs(teid, packet); err != nil {
			return nil, err
		}
	}
	frame := make([]byte, 12, 14+len(packet))
	mac := d.Ports.MAC(ifindex) // others' frames are the kernel's
	copy(frame, mac[:])
	etherType := uint16(0x86dd)
	if packet[0]>>4 == 4 {
		etherType = 0x0800
	}
	return append(binary.BigEndian.AppendUint16(frame, etherType), packet...), nil
}

// gpduToUs is a G-PDU to one of our GTP-U addresses. Nobody looks at the UDP
// checksum (docs/reference/semantics.md section 6).
func (d *DataPlane) gpduToUs(teid uint32, tpdu []byte) ([]byte, error) {
	d.mu.Lock()
	addresses := d.settings.Want.GTPUAddresses
	d.mu.Unlock()
	if len(addresses) == 0 {
		return nil, errors.New("there is no GTP-U address")
	}
	message, err := gtpu.AppendGPDU(nil, teid, gtpu.PDUSessionContainer{}, tpdu)
	if err != nil {
		return nil, err
	}
	be := binary.BigEndian
	a, length := addresses[0], uint16(8+len(message))
	var b []byte // an IP header from and to our address, then UDP
	if a.Is4() {
		b = append(be.AppendUint16([]byte{0x45, 0}, 20+length), 0, 0, 0x40, 0, settings.DefaultHopLimit, 17, 0, 0)
	} else {
		b = append(be.AppendUint16([]byte{0x60, 0, 0, 0}, length), 17, settings.DefaultHopLimit)
	}
	b = append(append(b, a.AsSlice()...), a.AsSlice()...)
	b = be.AppendUint16(be.AppendUint16(b, gtpu.Port), gtpu.Port)
	return append(be.AppendUint16(be.AppendUint16(b, length), 0), message...), nil
}
