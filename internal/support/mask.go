package support

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
)

// Mask replaces addresses and identities of subscribers by placeholders: ue-1 for an
// IPv4 address, or for the /64 of an IPv6 address; id-1 for an IMSI, IMEI, MSISDN or
// another user identity. The zero value has no pools, so that it masks identities only.
// A nil Mask masks nothing. Its methods may be called from several goroutines.
type Mask struct {
	mu    sync.Mutex
	pools []netip.Prefix
	ues   []netip.Prefix // whole prefixes of single UEs
	all   bool           // every address, except those of keep
	keep  map[netip.Addr]bool
	names map[string]string
	count map[string]int
}

// Know adds prefixes whose addresses are those of UEs.
func (m *Mask) Know(pools ...netip.Prefix) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range pools {
		if p.IsValid() {
			m.pools = append(m.pools, p.Masked())
		}
	}
}

// KnowUE adds prefixes each of which is one UE's, however short: a framed route.
func (m *Mask) KnowUE(prefixes ...netip.Prefix) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range prefixes {
		if p.IsValid() && p.Bits() > 0 {
			m.ues = append(m.ues, p.Masked())
		}
	}
}

// HideAll masks every address except those in text. It is for a node that does not
// know from which pools its UEs have their addresses.
func (m *Mask) HideAll(text string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.keep = true, map[netip.Addr]bool{}
	keep := func(s string) {
		if a, err := netip.ParseAddr(s); err == nil {
			m.keep[a] = true
		}
	}
	for _, s := range ipv4.FindAllString(text, -1) {
		keep(strings.Split(s, "/")[0])
	}
	for _, s := range ipv6.FindAllString(text, -1) {
		keep(strings.Split(s, "/")[0])
	}
}

var (
	ipv4 = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:/[0-9]{1,2})?`)
	ipv6 = regexp.MustCompile(`[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,11}(?:/[0-9]{1,3})?`)
	// digits are of an IMSI (14 or 15), IMEI (15) or IMEISV (16); longer runs match too,
	// and stay.
	digits = regexp.MustCompile(`[0-9]{14,}`)
	// identity is a word for an identity and its value, in text and in JSON.
	identity = regexp.MustCompile(`(?i)((?:imsi|imei(?:sv)?|msisdn|supi|gpsi|nai|user[_ -]?id)(?:\\?["'])?[-=: ]+(?:\\?["'])?)([\w.@+-]+)`)
	kind     = regexp.MustCompile(`(?i)^(?:imsi|imei(?:sv)?|msisdn|nai|supi|gpsi)-`)
	// literal is a string in JSON, and before it the key of those that stay.
	literal = regexp.MustCompile(`("(?:cp_)?seid":\s*)?"(?:[^"\\]|\\.)*"`)
)

// Text masks free text.
func (m *Mask) Text(s string) string {
	if m == nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plain(m.identities(s))
}

// JSON masks the strings in JSON, but not its numbers, which are counters.
func (m *Mask) JSON(s string) string {
	if m == nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return literal.ReplaceAllStringFunc(m.identities(s), func(s string) string {
		if !strings.HasPrefix(s, `"seid":`) && !strings.HasPrefix(s, `"cp_seid":`) {
			return m.plain(s)
		}
		return s
	})
}

func (m *Mask) identities(s string) string {
	return identity.ReplaceAllStringFunc(s, func(s string) string {
		parts := identity.FindStringSubmatch(s)
		value := kind.ReplaceAllString(parts[2], "")
		return parts[1] + m.name("id", strings.TrimLeft(value, "+"))
	})
}

// plain masks addresses and digits.
func (m *Mask) plain(s string) string {
	s = digits.ReplaceAllStringFunc(s, func(s string) string {
		if len(s) > 16 {
			return s
		}
		return m.name("id", s)
	})
	s = ipv4.ReplaceAllStringFunc(s, func(s string) string {
		if name, ok := m.address(s); ok {
			return name
		}
		return s
	})
	return ipv6.ReplaceAllStringFunc(s, m.within)
}

// within masks the longest address in a run of groups and colons: "ue:2001:db8::1:" is
// one group, an address, and a colon.
func (m *Mask) within(s string) string {
	text, bits, hasBits := strings.Cut(s, "/")
	cuts := []int{0}
	for i := range text {
		if text[i] == ':' {
			cuts = append(cuts, i, i+1)
		}
	}
	cuts = append(cuts, len(text))
	for _, from := range cuts {
		for i := len(cuts) - 1; i >= 0 && cuts[i] > from; i-- {
			candidate, to := text[from:cuts[i]], cuts[i]
			if hasBits && to == len(text) {
				candidate += "/" + bits
			}
			if name, ok := m.address(candidate); ok {
				rest := text[to:]
				if hasBits && to < len(text) {
					rest += "/" + bits
				}
				return text[:from] + name + rest
			}
		}
	}
	return s
}

// address is the placeholder of a UE's address or prefix. Prefixes that are shorter
// than those of a UE, such as pools, have none. ok says that no part of s may be taken
// for another address.
func (m *Mask) address(s string) (name string, ok bool) {
	text, _, isPrefix := strings.Cut(s, "/")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return "", false
	}
	a = a.Unmap()
	for _, p := range m.ues {
		if p.Contains(a) {
			return m.name("ue", p.String()), true
		}
	}
	ueBits := 32
	if a.Is6() {
		ueBits = 64
	}
	if p, err := netip.ParsePrefix(s); isPrefix && err == nil && p.Bits() < ueBits && p == p.Masked() {
		return s, m.all
	}
	for _, pool := range m.pools {
		if pool.Contains(a) {
			return m.name("ue", netip.PrefixFrom(a, ueBits).Masked().String()), true
		}
	}
	if m.all && m.keep[a] {
		return s, true
	}
	if m.all && a.IsGlobalUnicast() {
		return m.name("ue", netip.PrefixFrom(a, ueBits).Masked().String()), true
	}
	return "", false
}

// name is the placeholder of a value: always the same one.
func (m *Mask) name(what, value string) string {
	if m.names == nil {
		m.names, m.count = map[string]string{}, map[string]int{}
	}
	key := what + " " + value
	if m.names[key] == "" {
		m.count[what]++
		m.names[key] = fmt.Sprintf("%s-%d", what, m.count[what])
	}
	return m.names[key]
}
