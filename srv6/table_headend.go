package srv6

// headendRows are the behaviours that packets are steered into (RFC 8986
// section 5, RFC 9433 section 6.7).
var headendRows = []Row{
	headend(HEncaps, "H.Encaps", "RFC 8986 section 5.1",
		"encapsulates a packet in a policy's segment list", encapsLength(longestList)),
	headend(HEncapsRed, "H.Encaps.Red", "RFC 8986 section 5.2",
		"as H.Encaps, with the first segment left out of the SRH", encapsLength(longestList-1)),
	headend(HEncapsL2, "H.Encaps.L2", "RFC 8986 section 5.3",
		"encapsulates an Ethernet frame in a policy's segment list",
		encapsLength(longestList)+ethernetLength),
	headend(HEncapsL2Red, "H.Encaps.L2.Red", "RFC 8986 section 5.4",
		"as H.Encaps.L2, with the first segment left out of the SRH",
		encapsLength(longestList-1)+ethernetLength),
	{
		Behavior: HMGTP4D, Name: "H.M.GTP4.D", Section: "RFC 9433 section 6.7", Headend: true,
		Description: "takes GTP-U over IPv4 to a prefix into SRv6, with addresses, TEID and QFI in the new addresses",
		Required:    []string{"sid_prefix", "source_prefix", "pdu_type"},
		Optional:    []string{"policy"},
		Headroom:    encapsLength(longestList+1) - ipv4Length - udpLength - gtpuLength,
		Example: `steering:
  - prefix: 10.99.0.0/24
    h_m_gtp4_d:
      sid_prefix: 2001:db8:4e::/48
      source_prefix: 2001:db8:2::/64
      pdu_type: ipv4v6
`,
	},
}

// headend is a row of H.Encaps*.
func headend(b Behavior, name, section, description string, headroom int) Row {
	steering := `steering:
  - prefix: 198.51.100.0/24
    policy: core
`
	if b == HEncapsL2 || b == HEncapsL2Red {
		steering = `interfaces:
  - {name: eth2, roles: [edge]}
steering:
  - interface: eth2
    vlans: [100]
    policy: core
`
	}
	return Row{
		Behavior: b, Name: name, Section: section, Headend: true, Description: description,
		Required: []string{"segment_lists"},
		Optional: []string{"source", "binding_sid", "color", "endpoint"},
		Headroom: headroom,
		Example: `policies:
  - name: core
    behavior: ` + name + `
    source: 2001:db8:1::1
    segment_lists:
      - segments: ["2001:db8:2:e000::", "2001:db8:3:d146::"]
        weight: 2
      - segments: ["2001:db8:4:e000::", "2001:db8:3:d146::"]
` + steering,
	}
}
