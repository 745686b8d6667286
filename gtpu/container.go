package gtpu

import "github.com/culvert-net/culvert/srv6"

// PDUSessionContainer holds what a G-PDU says about its PDU session (TS 38.415
// section 5.5.2). The zero value, of type none, stands for no container.
type PDUSessionContainer struct {
	Type srv6.ContainerType
	QFI  uint8
	RQI  bool // reflective QoS indication; downlink only
}

// The octets of a container: PDU type << 4, and PPP << 7 | RQI << 6 | QFI.
const (
	pduTypeDownlink = 0
	pduTypeUplink   = 1
	rqiBit          = 0x40
	qfiMask         = 0x3f
)

// ParsePDUSessionContainer parses an extension header's content. ok is false for PDU
// types other than downlink and uplink, and for truncated containers.
func ParsePDUSessionContainer(content []byte) (PDUSessionContainer, bool) {
	if len(content) < 2 {
		return PDUSessionContainer{}, false
	}
	c := PDUSessionContainer{QFI: content[1] & qfiMask}
	switch content[0] >> 4 {
	case pduTypeDownlink:
		c.Type, c.RQI = srv6.ContainerDownlink, content[1]&rqiBit != 0
	case pduTypeUplink:
		c.Type = srv6.ContainerUplink
	default:
		return PDUSessionContainer{}, false
	}
	return c, true
}

// Container returns the message's PDU Session Container, the last if there are
// several.
func (h Header) Container() (PDUSessionContainer, bool) {
	var last PDUSessionContainer
	for t, content := range h.Extensions() {
		if t != PDUSessionContainerType {
			continue
		}
		if c, ok := ParsePDUSessionContainer(content); ok {
			last = c
		}
	}
	return last, last.Type != srv6.ContainerNone
}
