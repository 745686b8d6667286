package srv6

// mobileRows are the endpoint behaviours of RFC 9433 section 6.
var mobileRows = []Row{
	{
		Behavior: EndMAP, Name: "End.MAP", Section: "RFC 9433 section 6.2",
		Description: "replaces the destination by another SID and leaves the SRH alone",
		Required:    []string{"map"}, MaxLength: sidBits,
		Example: `sids:
  - sid: 2001:db8:1:a000::/64
    behavior: End.MAP
    map: 2001:db8:2:a000::1
`,
	},
	{
		Behavior: EndLimit, Name: "End.Limit", Section: "RFC 9433 section 6.8",
		Description: "goes on to the next segment at no more than the rate in its argument, which a group shares",
		Required:    []string{"rate_bits"},
		Optional:    []string{"group_bits", "rate_unit", "allow_upper_layer"},
		Flavors:     limitFlavors, MaxLength: sidBits - 1,
		Example: `sids:
  - sid: 2001:db8:1:a001::/64
    behavior: End.Limit
    group_bits: 16
    rate_bits: 24
    rate_unit: 1000
`,
	},
}

// fromGTPURows take what comes in a GTP-U tunnel into SRv6.
var fromGTPURows = []Row{
	{
		Behavior: EndMGTP6D, Name: "End.M.GTP6.D", Section: "RFC 9433 section 6.3",
		Description: "takes GTP-U over IPv6 into a policy, with TEID and QFI in the last SID's argument",
		Required:    []string{"policy", "source", "pdu_type", "args_offset"},
		Optional:    allowUpperLayer, MaxLength: sidBits,
		Headroom: encapsLength(longestList) - ipv6Length - udpLength - gtpuLength,
		Example: `sids:
  - sid: 2001:db8:1:6d::/64
    behavior: End.M.GTP6.D
    policy: to-upf
    source: 2001:db8:1::1
    pdu_type: ipv4v6
    args_offset: 64
policies:
  - name: to-upf
    source: 2001:db8:1::1
    segment_lists:
      - segments: ["2001:db8:2:e000::", "2001:db8:3:6e::"]
`,
	},
	{
		Behavior: EndMGTP6DDi, Name: "End.M.GTP6.D.Di", Section: "RFC 9433 section 6.4",
		Description: "as End.M.GTP6.D, drop-in: the original destination stays as the last segment",
		Required:    []string{"policy", "source", "pdu_type"},
		Optional:    []string{"args_offset", "allow_upper_layer"}, MaxLength: sidBits,
		Headroom: encapsLength(longestList+1) - ipv6Length - udpLength - gtpuLength,
		Example: `sids:
  - sid: 2001:db8:9::1/128
    behavior: End.M.GTP6.D.Di
    policy: to-gateway-b
    source: 2001:db8:1::1
    pdu_type: ipv4v6
    args_offset: 64
policies:
  - name: to-gateway-b
    source: 2001:db8:1::1
    segment_lists:
      - segments: ["2001:db8:2:6e::"]
`,
	},
}

// toGTPURows put what comes in SRv6 into a GTP-U tunnel.
var toGTPURows = []Row{
	{
		Behavior: EndMGTP6E, Name: "End.M.GTP6.E", Section: "RFC 9433 section 6.5",
		Description: "turns the last hop before a GTP-U node into GTP-U over IPv6, by TEID and QFI of its argument",
		Required:    []string{"source"},
		Optional:    []string{"pdu_session_container", "ignore_tag"},
		MaxLength:   sidBits - ArgsMobSessionBits,
		// The SRH that it removes has at least one segment.
		Headroom: ipv6Length + udpLength + gtpuPushed - encapsLength(1),
		Example: `sids:
  - sid: 2001:db8:2:6e::/64
    behavior: End.M.GTP6.E
    source: 2001:db8:2::1
    pdu_session_container: downlink
`,
	},
	{
		Behavior: EndMGTP4E, Name: "End.M.GTP4.E", Section: "RFC 9433 section 6.6",
		Description: "turns SRv6 into GTP-U over IPv4, by the addresses, TEID and QFI in its addresses",
		Required:    []string{"source_prefix_length"},
		Optional:    []string{"pdu_session_container", "ignore_tag"},
		MaxLength:   sidBits - ipv4Bits - ArgsMobSessionBits,
		Headroom:    ipv4Length + udpLength + gtpuPushed - encapsLength(0),
		Example: `sids:
  - sid: 2001:db8:4e::/48
    behavior: End.M.GTP4.E
    source_prefix_length: 64
    pdu_session_container: downlink
`,
	},
}
