package catalog

// title is what a report calls a function, and what the function does, for a reader who
// does not know it.
type title struct{ Name, Meaning string }

// Titles are those of all functions, by their names in flags and files.
var Titles = map[string]title{
	"l2_forward":        {"L2 forward", "only the two Ethernet addresses change: the least that forwarding can cost"},
	"end":               {"End", "the next segment of an SRv6 packet becomes its destination"},
	"end_x":             {"End.X", "End, and out by a next hop that the SID names"},
	"end_t":             {"End.T", "End, and out by a routing table that the SID names"},
	"end_dt4":           {"End.DT4", "SRv6 decapsulation: the IPv4 packet inside is routed by a table"},
	"end_dt6":           {"End.DT6", "SRv6 decapsulation: the IPv6 packet inside is routed by a table"},
	"end_dt46":          {"End.DT46", "SRv6 decapsulation: IPv4 or IPv6 inside is routed by a table"},
	"end_dx2":           {"End.DX2", "SRv6 decapsulation: the Ethernet frame inside goes out by an interface"},
	"end_dx4":           {"End.DX4", "SRv6 decapsulation: the IPv4 packet inside goes to a next hop"},
	"end_dx6":           {"End.DX6", "SRv6 decapsulation: the IPv6 packet inside goes to a next hop"},
	"end_b6_encaps_red": {"End.B6.Encaps.Red", "an SRv6 packet is put into another one, of a policy"},
	"end_map":           {"End.MAP", "the SID is replaced by another one"},
	"usid":              {"End, NEXT-C-SID", "the next of several short SIDs in one address"},
	"h_encaps":          {"H.Encaps", "SRv6 encapsulation with the whole Segment Routing Header"},
	"h_encaps_red":      {"H.Encaps.Red", "SRv6 encapsulation without what the IPv6 header says already"},
	"h_encaps_l2_red":   {"H.Encaps.L2.Red", "SRv6 encapsulation of whole Ethernet frames"},
	"gtpu_decap":        {"GTP-U decap", "a tunnel's header off"},
	"gtpu_encap":        {"GTP-U encap", "a tunnel's header on, by the UE's address"},
	"gtpu_switch":       {"GTP-U switch", "out of one tunnel, into another"},
	"h_m_gtp4_d":        {"H.M.GTP4.D", "GTP-U over IPv4 becomes SRv6, with no table of tunnels (paper 001: T.M.Tmap)"},
	"end_m_gtp4_e":      {"End.M.GTP4.E", "SRv6 becomes GTP-U over IPv4, with no table of tunnels"},
	"end_m_gtp6_d":      {"End.M.GTP6.D", "GTP-U over IPv6 becomes SRv6, with no table of tunnels"},
	"end_m_gtp6_d_di":   {"End.M.GTP6.D.Di", "End.M.GTP6.D that keeps the destination as the last segment"},
	"end_m_gtp6_e":      {"End.M.GTP6.E", "SRv6 becomes GTP-U over IPv6, with no table of tunnels"},
	"uplink":            {"UPF uplink", "a session's packet from the gNB: GTP-U off, rate limit and volume looked at, out to the network"},
	"downlink":          {"UPF downlink", "a session's packet to the gNB: rate limit and volume looked at, GTP-U on"},
}
