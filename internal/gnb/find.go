package gnb

import "fmt"

// packets is a number of G-PDUs in words.
func packets(n uint64) string {
	if n == 1 {
		return "1 G-PDU"
	}
	return fmt.Sprintf("%d G-PDUs", n)
}

// find says where packets went missing, as far as the evidence tells: the first place
// on their way that cannot be excluded, and what to look at there.
func (e *Evidence) find(s *Session) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, x := range distinct(e.Errors) {
		add("the UE got an ICMP error: %s, from %s", x.Kind(), x.From)
	}
	for _, x := range distinct(e.N3Errors) {
		add("N3: %s sent the gNB an ICMP error, %s: its packets do not reach GTP-U at %s", x.From, x.Kind(), s.UPF.Address)
	}
	if e.Unknown > 0 {
		add("%s came for TEIDs of no session here", packets(e.Unknown))
	}
	switch {
	case e.GTPU.Sent == 0:
		add("no packet of the UE could be sent to the UPF: the gNB has no route to %s", s.UPF.Address)
	case e.GTPU.Refused > 0:
		add("the UPF answered by Error Indications: it does not know TEID %#x. Its session is gone, or N3 leads to another UPF", s.UPF.TEID)
	case e.Echo != nil && !*e.Echo:
		add("N3: %s does not answer GTP-U Echo Requests. Is it an address of the UPF, does the route from %s lead there, and does the UPF let this gNB in (of Culvert: gtpu.addresses, and role n3 and peers of the interface)?",
			s.UPF.Address, s.GNB.Address)
		if e.Veth != "" {
			add("N3: %s is a veth without GRO: what a UPF sends to it by native XDP is lost. Run ethtool -K %s gro on where the gNB is", e.Veth, e.Veth)
		}
	case e.GTPU.Received > 0:
		add("%s came back, without an answer of the target", packets(e.GTPU.Received))
	default:
		e.findBehindUPF(s, add)
	}
	return list
}

// findBehindUPF is about packets that the UPF got, and of which nothing came back.
func (e *Evidence) findBehindUPF(s *Session, add func(string, ...any)) {
	const look = "Does the next hop on N6 answer, does it have a route back to the UEs' pool through the UPF, and does the target answer anybody?"
	sent := fmt.Sprintf("%s went to %s, and none came back.", packets(e.GTPU.Sent), s.UPF.Address)
	switch u := e.Usage; {
	case u == nil:
		add("%s The UPF answers GTP-U Echo Requests, so N3 is not to blame: look at the session and at what the UPF drops (of Culvert: culvert session, culvert drops). N6: %s", sent, look)
	case u.Uplink == 0:
		add("%s The UPF counted none of them for the session: it dropped them (of Culvert: culvert drops; ue_source means another UE address than the session's)", sent)
	case u.Downlink == 0:
		add("N6: %s The UPF counted %d octets up and 0 down: no answer came to the UPF. %s", sent, u.Uplink, look)
	default:
		add("N3: %s The UPF counted %d octets down: they were lost on their way to the gNB at %s", sent, u.Downlink, s.GNB.Address)
	}
}

// distinct is a list without what is in it already.
func distinct[T comparable](list []T) (out []T) {
	seen := map[T]bool{}
	for _, v := range list {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
