package probe

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ICMPError is an ICMP error that reached a socket, as the kernel hands it
// out (ip(7), IP_RECVERR).
type ICMPError struct {
	From netip.Addr `json:"from"` // who sent the error
	Type uint8      `json:"type"`
	Code uint8      `json:"code"`
	MTU  uint32     `json:"mtu,omitempty"`
}

// Kinds of ICMP errors, in words for both families.
const (
	TooBig           = "packet too big"
	HopLimitExceeded = "hop limit exceeded"
	Unreachable      = "unreachable"
	ParameterProblem = "parameter problem"
)

// Kind names the error.
func (e ICMPError) Kind() string {
	if e.From.Is4() && e.Type == 3 && e.Code == 4 {
		return TooBig
	}
	kinds := map[uint8]string{1: Unreachable, 2: TooBig, 3: HopLimitExceeded, 4: ParameterProblem}
	if e.From.Is4() {
		kinds = map[uint8]string{3: Unreachable, 11: HopLimitExceeded, 12: ParameterProblem}
	}
	if k, ok := kinds[e.Type]; ok {
		return k
	}
	return fmt.Sprintf("ICMP type %d code %d", e.Type, e.Code)
}

// ReceiveErrors makes the kernel queue ICMP errors on socket fd.
func ReceiveErrors(fd int, ipv4 bool) error {
	if ipv4 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
}

// ReadErrors takes all ICMP errors off the queue of the non-blocking socket
// fd.
func ReadErrors(fd int) []ICMPError {
	var list []ICMPError
	data, oob := make([]byte, 2048), make([]byte, 512)
	for {
		_, n, _, _, err := unix.Recvmsg(fd, data, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return list
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			continue
		}
		for _, m := range messages {
			if e, ok := parseError(m); ok {
				list = append(list, e)
			}
		}
	}
}

// parseError reads struct sock_extended_err and the address behind it.
func parseError(m unix.SocketControlMessage) (ICMPError, bool) {
	ipv4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
	ipv6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
	const extended = 16
	if !ipv4 && !ipv6 || len(m.Data) < extended+8 {
		return ICMPError{}, false
	}
	origin := m.Data[4]
	if origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
		return ICMPError{}, false // this host's own doing: no packet came
	}
	e := ICMPError{Type: m.Data[5], Code: m.Data[6]}
	from := m.Data[extended:]
	if origin == unix.SO_EE_ORIGIN_ICMP {
		e.From = netip.AddrFrom4([4]byte(from[4:8]))
	} else {
		if len(from) < 24 {
			return ICMPError{}, false
		}
		e.From = netip.AddrFrom16([16]byte(from[8:24]))
	}
	if e.Kind() == TooBig {
		e.MTU = binary.NativeEndian.Uint32(m.Data[8:])
	}
	return e, true
}
