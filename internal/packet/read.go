package golden

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/culvert-net/culvert/internal/packet"
)

// layers is a frame as a golden file has it: [{ethernet: {}}, {ipv6: {...}}].
type layers []packet.Layer

// UnmarshalJSON reads a list of single-key maps.
func (l *layers) UnmarshalJSON(data []byte) error {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("layers: want a list of single-key maps: %w", err)
	}
	for i, entry := range list {
		if len(entry) != 1 {
			return fmt.Errorf("layer %d: want one key, have %d", i, len(entry))
		}
		for name, fields := range entry {
			layer, err := decode(name, fields)
			if err != nil {
				return fmt.Errorf("layer %d: %s: %w", i, name, err)
			}
			*l = append(*l, layer)
		}
	}
	return nil
}

func decode(name string, fields json.RawMessage) (packet.Layer, error) {
	switch strings.SplitN(name, ".", 2)[0] {
	case "ethernet":
		return as[packet.Ethernet](fields)
	case "ipv6":
		return as[packet.IPv6](fields)
	case "ipv4":
		return as[packet.IPv4](fields)
	case "srh":
		return as[packet.SRH](fields)
	case "extension":
		return as[packet.Extension](fields)
	case "udp":
		return as[packet.UDP](fields)
	case "tcp":
		return as[packet.TCP](fields)
	case "icmp":
		return as[packet.ICMP](fields)
	case "gtpu":
		return as[packet.GTPU](fields)
	case "vxlan":
		return as[packet.VXLAN](fields)
	case "payload":
		return as[packet.Payload](fields)
	}
	return nil, fmt.Errorf("no such layer: want ethernet, ipv6, ipv4, srh, extension, udp, tcp, icmp, gtpu, vxlan or payload")
}

func as[L packet.Layer](fields json.RawMessage) (packet.Layer, error) {
	var layer L
	d := json.NewDecoder(strings.NewReader(string(fields)))
	d.DisallowUnknownFields()
	err := d.Decode(&layer)
	return layer, err
}
