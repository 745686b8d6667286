package session

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// ParseFilter parses a Flow Description: an IPFilterRule of RFC 6733 section
// 4.3.1 as TS 29.244 section 8.2.5 restricts it:
//
//	permit out|in PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]
//
// PROTOCOL is a number, "ip", or one of the names that SMFs write although they
// should not (Open5GS: udp); ADDRESS an address, a prefix, "any" or
// "assigned"; PORTS a list of ports and ranges. "out" is seen from the network:
// to the UE. Options, "deny" and "!" are errors, since nothing of them may be
// used (TS 29.212 section 5.4.2).
func ParseFilter(text string) (Filter, error) {
	f := Filter{Text: text}
	words := strings.Fields(text)
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		w := words[0]
		words = words[1:]
		return w
	}
	if w := next(); w != "permit" {
		return Filter{}, fmt.Errorf("filter begins with %q: only permit is allowed", w)
	}
	direction := next()
	if direction != "out" && direction != "in" {
		return Filter{}, fmt.Errorf("filter direction %q is neither out nor in", direction)
	}
	if err := f.setProtocol(next()); err != nil {
		return Filter{}, err
	}
	from, err := parseEnd("from", next, &words)
	if err != nil {
		return Filter{}, err
	}
	to, err := parseEnd("to", next, &words)
	if err != nil {
		return Filter{}, err
	}
	if len(words) > 0 {
		return Filter{}, fmt.Errorf("filter option %q is not allowed", words[0])
	}
	if from.prefix.IsValid() && to.prefix.IsValid() && from.prefix.Addr().Is4() != to.prefix.Addr().Is4() {
		return Filter{}, errors.New("the addresses of a filter belong to different families")
	}
	if direction == "in" {
		from, to = to, from
	}
	f.Remote, f.RemotePorts = from.prefix, from.ports
	f.Local, f.LocalPorts = to.prefix, to.ports
	return f, nil
}

// protocols are the names in IANA's registry that occur in packet filters.
var protocols = map[string]uint8{
	"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ah": 51,
	"ipv6-icmp": 58, "icmpv6": 58, "ospf": 89, "sctp": 132,
}

func (f *Filter) setProtocol(word string) error {
	if word == "ip" {
		f.AnyProtocol = true
		return nil
	}
	if n, ok := protocols[word]; ok {
		f.Protocol = n
		return nil
	}
	n, err := strconv.ParseUint(word, 10, 8)
	if err != nil {
		return fmt.Errorf("filter protocol %q is neither a number nor a known name", word)
	}
	f.Protocol = uint8(n)
	return nil
}

// end is one side of a filter.
type end struct {
	prefix netip.Prefix
	ports  []PortRange
}

// parseEnd reads "from ADDRESS [PORTS]" or "to ADDRESS [PORTS]".
func parseEnd(keyword string, next func() string, words *[]string) (end, error) {
	if w := next(); w != keyword {
		return end{}, fmt.Errorf("filter has %q where %q is expected", w, keyword)
	}
	var e end
	var err error
	if e.prefix, err = parseAddress(next()); err != nil {
		return end{}, err
	}
	// What comes next is a list of ports if it begins with a digit.
	if len(*words) > 0 && (*words)[0][0] >= '0' && (*words)[0][0] <= '9' {
		if e.ports, err = parsePorts(next()); err != nil {
			return end{}, err
		}
	}
	return e, nil
}

func parseAddress(word string) (netip.Prefix, error) {
	if word == "any" || word == "assigned" {
		return netip.Prefix{}, nil
	}
	if strings.Contains(word, "/") {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("filter address %q is not an address with a prefix length", word)
		}
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(word)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("filter address %q is not an address", word)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func parsePorts(word string) ([]PortRange, error) {
	var ports []PortRange
	for part := range strings.SplitSeq(word, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || from > to {
			return nil, fmt.Errorf("filter ports %q are not within 0 to %d, or the range runs backwards", part, math.MaxUint16)
		}
		ports = append(ports, PortRange{From: uint16(from), To: uint16(to)})
	}
	return ports, nil
}

// MatchNothing returns a filter that no packet matches: its addresses belong to
// different families. It stands for an application whose filters are gone.
func MatchNothing() Filter {
	return Filter{
		AnyProtocol: true,
		Remote:      netip.PrefixFrom(netip.IPv4Unspecified(), 32),
		Local:       netip.PrefixFrom(netip.IPv6Unspecified(), 128),
	}
}
