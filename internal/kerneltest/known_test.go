package kerneltest

// What the kernel does otherwise, and the texts that decide for the data path.

// Who spends the hop at an encapsulation, and what the new header starts with.
const (
	freshHopLimit = "RFC 2473 section 6.3: the hop limit of the new header is configured (64); " +
		"the kernel copies that of an IPv6 packet inside, and spends the hop on the new header"
	spentInside = "RFC 2473 section 6.3: a tunnel is one hop for the packet inside, spent where it enters; the kernel leaves that packet as it was"
	spentAtEnd  = "RFC 2473 section 6.3: a packet that has no hop left cannot enter; the kernel gives it a new header"
	spentFirst  = "RFC 8986 section 4.13: the received hop limit goes down by one before the push; the kernel leaves it as it was"
	notLookedAt = "RFC 8986 section 5.3: the frame is carried as it is; the kernel takes the hop limit of the IPv6 packet in it for the new header"
)

// Traffic class and flow label.
const (
	classOf4 = "RFC 2473 section 6.4 with RFC 6040 section 4.1: DSCP and ECN go outside, of IPv4 too; the kernel sends 0"
	noClass  = "RFC 8986 section 5.3: the frame is carried as it is, and has no traffic class; the kernel takes that of the IPv6 packet in it"
	byFlow   = "RFC 8986 section 5.1: the flow label is computed as RFC 6437 says; the kernel, unless seg6_flowlabel is set, " +
		"copies that of an IPv6 packet inside and sends 0 otherwise"
	congestion = "RFC 6040 section 4.2: a congestion mark survives decapsulation; the kernel leaves the packet inside as it was"
	checksum   = "the IPv4 header checksum covers the TOS that differs"
	notCapable = "RFC 6040 section 4.2: CE outside of Not-ECT is dropped; the kernel forwards the packet"
)

// The differences of each kind of behaviour.
var (
	knownOfB6 = []difference{
		{outerFlowLabel, "", byFlow},
		{outerHopLimit, "", freshHopLimit},
		{nextHopLimit, "", spentFirst},
		{innerHopLimit, "UDP without tunnel", spentFirst},
	}
	knownOfDecapsulation = []difference{
		{innerClass, "outer ECN", congestion},
		{forwarded, "outer ECN 3", notCapable},
	}
	knownOfDecapsulation4 = append([]difference{{innerHopLimit, "outer ECN", checksum}}, knownOfDecapsulation...)

	knownOfEncaps6 = []difference{
		{outerFlowLabel, "", byFlow},
		{outerHopLimit, "", freshHopLimit},
		{innerHopLimit, "", spentInside},
	}
	knownOfEncaps4 = append([]difference{
		{outerClass, "", classOf4},
		{forwarded, "inner hops 1.", spentAtEnd},
	}, knownOfEncaps6...)

	knownOfFrames4 = []difference{
		{outerFlowLabel, "", byFlow},
		{outerHopLimit, "", freshHopLimit},
	}
	knownOfFrames6 = append([]difference{
		{outerClass, "", noClass},
		{forwarded, "inner hops 1.", notLookedAt},
	}, knownOfFrames4...)
)
