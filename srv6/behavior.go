package srv6

// Behavior is an SRv6 endpoint or headend behaviour. The data path uses the same
// numbers: bpf/srv6/behaviors.h is generated from them. They are not IANA's
// codepoints: see Codepoint.
type Behavior uint8

// The behaviours.
const (
	BehaviorNone   Behavior = iota // no behaviour
	End                            // End: the next segment (RFC 8986 section 4.1)
	EndX                           // End.X: the next segment, over one adjacency
	EndT                           // End.T: the next segment, by a routing table
	EndDX2                         // End.DX2: decapsulate a frame to an interface
	EndDX4                         // End.DX4: decapsulate IPv4 to an adjacency
	EndDX6                         // End.DX6: decapsulate IPv6 to an adjacency
	EndDT4                         // End.DT4: decapsulate IPv4 to a routing table
	EndDT6                         // End.DT6: decapsulate IPv6 to a routing table
	EndDT46                        // End.DT46: decapsulate IPv4 or IPv6 to a routing table
	EndB6Encaps                    // End.B6.Encaps: a binding SID
	EndB6EncapsRed                 // End.B6.Encaps.Red: a binding SID, reduced
	EndMAP                         // End.MAP: replace the destination (RFC 9433 section 6.2)
	EndLimit                       // End.Limit: limit the rate (RFC 9433 section 6.8)
	EndMGTP6D                      // End.M.GTP6.D: GTP-U over IPv6 to SRv6
	EndMGTP6DDi                    // End.M.GTP6.D.Di: the same, drop-in
	EndMGTP6E                      // End.M.GTP6.E: SRv6 to GTP-U over IPv6
	EndMGTP4E                      // End.M.GTP4.E: SRv6 to GTP-U over IPv4
	HEncaps                        // H.Encaps (RFC 8986 section 5.1)
	HEncapsRed                     // H.Encaps.Red
	HEncapsL2                      // H.Encaps.L2
	HEncapsL2Red                   // H.Encaps.L2.Red
	HMGTP4D                        // H.M.GTP4.D: GTP-U over IPv4 to SRv6 (RFC 9433 section 6.7)
)

// Flavor modifies how End, End.X and End.T treat the SRH (RFC 8986 section
// 4.16, RFC 9800 section 4).
type Flavor uint8

// The flavors, one bit each.
const (
	PSP      Flavor = 1 << iota // penultimate segment pop of the SRH
	USP                         // ultimate segment pop of the SRH
	USD                         // ultimate segment decapsulation
	NextCSID                    // NEXT-C-SID (RFC 9800): uN, uA, uDT
)

// PDUType is what a translating behaviour expects behind the GTP-U header.
type PDUType uint8

// The PDU types.
const (
	PDUTypeNone         PDUType = iota // not given
	PDUTypeIPv4                        // IPv4 packets
	PDUTypeIPv6                        // IPv6 packets
	PDUTypeIPv4v6                      // packets of either version
	PDUTypeEthernet                    // Ethernet frames
	PDUTypeUnstructured                // anything
)

// ContainerType is the PDU type of a PDU Session Container (TS 38.415).
type ContainerType uint8

// The container types.
const (
	ContainerNone     ContainerType = iota // no container
	ContainerDownlink                      // DL PDU SESSION INFORMATION
	ContainerUplink                        // UL PDU SESSION INFORMATION
)
