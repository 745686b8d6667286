package traffic

import (
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// summary names a frame's layers, and what an ICMP message says.
func summary(frame []byte) string {
	var names []string
	for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy).Layers() {
		switch l := l.(type) {
		case *layers.ICMPv4:
			names = append(names, "ICMP "+l.TypeCode.String())
		case *layers.ICMPv6:
			names = append(names, "ICMPv6 "+l.TypeCode.String())
		default:
			names = append(names, l.LayerType().String())
		}
	}
	return strings.Join(names, ", ")
}
