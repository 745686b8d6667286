package session

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Words says what a PDR of the session does, in a sentence: which packets it takes, what
// becomes of them, how fast they may be, and what counts them.
func (s *Session) Words(p *PDR) string {
	uplink := p.PDI.Source == Access
	text := p.PDI.words() + " -> " + s.fate(p.FAR)
	for _, id := range p.QERs {
		if q := s.QER(id); q != nil {
			text += q.words(uplink)
		}
	}
	if len(p.URRs) > 0 {
		text += ", counted by URR " + joined(p.URRs)
	}
	return text
}

// sources are where packets come from.
var sources = map[Interface]string{
	Access: "uplink", Core: "downlink", SGiLAN: "from the N6-LAN", CPFunction: "from the SMF", LIFunction: "from LI",
}

// words are the packets that a PDI takes.
func (p *PDI) words() string {
	list := []string{sources[p.Source]}
	if p.TEID != 0 {
		list = append(list, fmt.Sprintf("TEID %#x at %s", p.TEID, joined(slices.DeleteFunc([]netip.Addr{p.TEID4, p.TEID6}, func(a netip.Addr) bool { return !a.IsValid() }))))
	}
	if len(p.QFIs) > 0 {
		list = append(list, "QFI "+joined(p.QFIs))
	}
	if len(p.UE) > 0 {
		list = append(list, "UE "+joined(p.UE))
	}
	if len(p.FramedRoutes) > 0 {
		list = append(list, "behind it "+joined(p.FramedRoutes))
	}
	for _, f := range p.Filters {
		list = append(list, fmt.Sprintf("%q", f.Text))
	}
	if p.ApplicationID != "" {
		list = append(list, "application "+p.ApplicationID)
	}
	if len(p.Ethernet) > 0 {
		list = append(list, fmt.Sprintf("%d Ethernet filters", len(p.Ethernet)))
	}
	if p.NetworkInstance != "" {
		list = append(list, "network instance "+p.NetworkInstance)
	}
	return strings.Join(list, ", ")
}

// fate is what a FAR does with packets.
func (s *Session) fate(id uint32) string {
	f := s.FAR(id)
	if f == nil {
		return fmt.Sprintf("dropped: there is no FAR %d", id)
	}
	text := "dropped"
	switch {
	case f.Action&Forward != 0 && f.Forwarding == nil:
		text = "dropped: the SMF has not said where to"
	case f.Action&Forward != 0:
		text = f.Forwarding.words()
	case f.Action&Buffer != 0 && f.Action&Notify != 0:
		text = "buffered, and the SMF is told"
	case f.Action&Buffer != 0:
		text = "buffered"
	}
	if f.Action&Duplicate != 0 {
		text += fmt.Sprintf(", %d copies", len(f.Duplicates))
	}
	return text
}

// words are where packets go.
func (f *Forwarding) words() string {
	if o := f.Outer; o != nil {
		to := map[Interface]string{Access: "gNB", Core: "next UPF", CPFunction: "SMF"}[f.Destination]
		if f.Destination == Access && f.InterfaceType != nil && *f.InterfaceType == TypeN9 {
			to = "UPF before"
		}
		if o.Kind == OuterGTPU {
			return fmt.Sprintf("%s %s TEID %#x", to, o.Addr, o.TEID)
		}
		return fmt.Sprintf("%s %s", to, o.Addr)
	}
	of := ""
	if f.NetworkInstance != "" {
		of = " of " + f.NetworkInstance
	}
	switch f.Destination {
	case Access:
		return "dropped: the SMF has not named the gNB's tunnel"
	case SGiLAN:
		return "N6-LAN" + of
	default:
		return "N6" + of
	}
}

// words are what a QER does to packets of a direction.
func (q *QER) words(uplink bool) (text string) {
	add := func(format string, args ...any) { text += fmt.Sprintf(", "+format+" (QER %d)", append(args, q.ID)...) }
	if uplink && q.UplinkClosed || !uplink && q.DownlinkClosed {
		add("gate closed")
	}
	if q.MBR != nil {
		rate := q.MBR.Downlink
		if uplink {
			rate = q.MBR.Uplink
		}
		add("at most %s", bitRate(rate))
	}
	if q.QFI != nil && !uplink {
		add("marked QFI %d", *q.QFI)
	}
	return text
}

// bitRate is a rate of kbit/s with the unit that people use.
func bitRate(kbit uint64) string {
	const mega, giga = 1000, 1_000_000
	switch {
	case kbit >= giga && kbit%mega == 0:
		return fmt.Sprintf("%g Gbit/s", float64(kbit)/giga)
	case kbit >= mega:
		return fmt.Sprintf("%g Mbit/s", float64(kbit)/mega)
	}
	return fmt.Sprintf("%d kbit/s", kbit)
}

func joined[T any](list []T) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, " ")
}
