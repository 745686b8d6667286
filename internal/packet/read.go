package packet

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Layers is a frame as golden files and topologies have it: [{ethernet: {}}, {ipv6: {...}}].
// What follows a dot in a name tells two layers of a kind apart.
type Layers []Layer

// UnmarshalJSON reads a list of single-key maps.
func (l *Layers) UnmarshalJSON(data []byte) error {
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

func decode(name string, fields json.RawMessage) (Layer, error) {
	switch strings.SplitN(name, ".", 2)[0] {
	case "ethernet":
		return as[Ethernet](fields)
	case "ipv6":
		return as[IPv6](fields)
	case "ipv4":
		return as[IPv4](fields)
	case "srh":
		return as[SRH](fields)
	case "extension":
		return as[Extension](fields)
	case "udp":
		return as[UDP](fields)
	case "tcp":
		return as[TCP](fields)
	case "icmp":
		return as[ICMP](fields)
	case "gtpu":
		return as[GTPU](fields)
	case "vxlan":
		return as[VXLAN](fields)
	case "payload":
		return as[Payload](fields)
	}
	return nil, fmt.Errorf("no such layer: want ethernet, ipv6, ipv4, srh, extension, udp, tcp, icmp, gtpu, vxlan or payload")
}

func as[L Layer](fields json.RawMessage) (Layer, error) {
	var layer L
	d := json.NewDecoder(strings.NewReader(string(fields)))
	d.DisallowUnknownFields()
	err := d.Decode(&layer)
	return layer, err
}
