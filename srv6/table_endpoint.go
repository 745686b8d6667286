package srv6

// endpointRows are the behaviours of RFC 8986 section 4.
var endpointRows = []Row{
	{
		Behavior: End, Name: "End", Section: "RFC 8986 section 4.1",
		Description: "goes on to the next segment by the main table; with NEXT-C-SID: uN",
		Optional:    allowUpperLayer, Flavors: endFlavors, MaxLength: sidBits,
		Example: `sids:
  - sid: 2001:db8:1:e000::/64
    behavior: End
    flavors: [PSP, USD]
`,
	},
	{
		Behavior: EndX, Name: "End.X", Section: "RFC 8986 section 4.2",
		Description: "goes on to the next segment over one adjacency; with NEXT-C-SID: uA",
		OneOf:       []string{"next_hop", "interface"},
		Optional:    allowUpperLayer, Flavors: endFlavors, MaxLength: sidBits,
		Example: `sids:
  - sid: 2001:db8:1:e001::/64
    behavior: End.X
    flavors: [PSP]
    next_hop: fe80::2
    interface: eth1
`,
	},
	{
		Behavior: EndT, Name: "End.T", Section: "RFC 8986 section 4.3",
		Description: "goes on to the next segment by the routing table given",
		Required:    []string{"table"},
		Optional:    allowUpperLayer, Flavors: endFlavors, MaxLength: sidBits,
		Example: `sids:
  - sid: 2001:db8:1:e002::/64
    behavior: End.T
    table: 100
`,
	},
	{
		Behavior: EndDX2, Name: "End.DX2", Section: "RFC 8986 section 4.9",
		Description: "decapsulates an Ethernet frame, which leaves on the interface given",
		Required:    []string{"interface"},
		Optional:    allowUpperLayer, Flavors: decapsulationFlavors, MaxLength: sidBits,
		Headroom: -encapsLength(0) - ethernetLength,
		Example: `sids:
  - sid: 2001:db8:1:d002::/64
    behavior: End.DX2
    interface: eth2
`,
	},
}

// decapsulationRows are those that take the IP packet inside, and End.B6.
var decapsulationRows = []Row{
	{
		Behavior: EndDX4, Name: "End.DX4", Section: "RFC 8986 section 4.5",
		Description: "decapsulates IPv4 and sends it over one adjacency",
		OneOf:       []string{"next_hop", "interface"},
		Optional:    allowUpperLayer, Flavors: decapsulationFlavors, MaxLength: sidBits,
		Headroom: -encapsLength(0),
		Example: `sids:
  - sid: 2001:db8:1:d004::/64
    behavior: End.DX4
    next_hop: 192.0.2.2
`,
	},
	{
		Behavior: EndDX6, Name: "End.DX6", Section: "RFC 8986 section 4.4",
		Description: "decapsulates IPv6 and sends it over one adjacency",
		OneOf:       []string{"next_hop", "interface"},
		Optional:    allowUpperLayer, Flavors: decapsulationFlavors, MaxLength: sidBits,
		Headroom: -encapsLength(0),
		Example: `sids:
  - sid: 2001:db8:1:d006::/64
    behavior: End.DX6
    next_hop: 2001:db8:2::2
`,
	},
	decapsulateByTable(EndDT4, "End.DT4", "RFC 8986 section 4.7", "decapsulates IPv4", "d104"),
	decapsulateByTable(EndDT6, "End.DT6", "RFC 8986 section 4.6", "decapsulates IPv6", "d106"),
	decapsulateByTable(EndDT46, "End.DT46", "RFC 8986 section 4.8", "decapsulates IPv4 or IPv6", "d146"),
}

// decapsulateByTable is a row of End.DT*.
func decapsulateByTable(b Behavior, name, section, does, function string) Row {
	return Row{
		Behavior: b, Name: name, Section: section,
		Description: does + " and looks the routing table given up (no VRF device is needed)",
		Required:    []string{"table"},
		Optional:    allowUpperLayer, Flavors: decapsulationFlavors, MaxLength: sidBits,
		Headroom: -encapsLength(0),
		Example: "sids:\n  - sid: 2001:db8:1:" + function + "::/64\n    behavior: " + name +
			"\n    table: 254\n",
	}
}

// bindingRows put a packet into a policy.
var bindingRows = []Row{
	{
		Behavior: EndB6Encaps, Name: "End.B6.Encaps", Section: "RFC 8986 section 4.13",
		Description: "goes on to the next segment inside a policy's encapsulation: a binding SID",
		Required:    []string{"policy"}, MaxLength: sidBits,
		Headroom: encapsLength(longestList),
		Example: `sids:
  - sid: 2001:db8:1:b000::/64
    behavior: End.B6.Encaps
    policy: detour
policies:
  - name: detour
    behavior: H.Encaps
    source: 2001:db8:1::1
    segment_lists:
      - segments: ["2001:db8:2:e000::", "2001:db8:3:d106::"]
`,
	},
	{
		Behavior: EndB6EncapsRed, Name: "End.B6.Encaps.Red", Section: "RFC 8986 section 4.14",
		Description: "as End.B6.Encaps, with the first segment left out of the SRH",
		Required:    []string{"policy"}, MaxLength: sidBits,
		Headroom: encapsLength(longestList - 1),
		Example: `sids:
  - sid: 2001:db8:1:b001::/64
    behavior: End.B6.Encaps.Red
    policy: detour
policies:
  - name: detour
    source: 2001:db8:1::1
    segment_lists:
      - segments: ["2001:db8:2:e000::", "2001:db8:3:d106::"]
`,
	},
}
