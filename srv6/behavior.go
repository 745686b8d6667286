package srv6

// Behavior is an SRv6 endpoint or headend behaviour. The data path uses the same
// numbers: bpf/srv6/behaviors.h is generated from them. They are not IANA's
// codepoints: see Codepoint.
type Behavior uint8

const (
	BehaviorNone Behavior = iota
	End
	EndX
	EndT
	EndDX2
	EndDX4
	EndDX6
	EndDT4
	EndDT6
	EndDT46
	EndB6Encaps
	EndB6EncapsRed
	EndMAP
	EndLimit
	EndMGTP6D
	EndMGTP6DDi
	EndMGTP6E
	EndMGTP4E
	HEncaps
	HEncapsRed
	HEncapsL2
	HEncapsL2Red
	HMGTP4D
)

// Flavor modifies how End, End.X and End.T treat the SRH (RFC 8986 section
// 4.16, RFC 9800 section 4).
type Flavor uint8

const (
	PSP      Flavor = 1 << iota // penultimate segment pop of the SRH
	USP                         // ultimate segment pop of the SRH
	USD                         // ultimate segment decapsulation
	NextCSID                    // NEXT-C-SID (RFC 9800): uN, uA, uDT
)

// PDUType says what a translating behaviour finds behind the GTP-U header.
type PDUType uint8

const (
	PDUTypeNone PDUType = iota
	PDUTypeIPv4
	PDUTypeIPv6
	PDUTypeIPv4v6
	PDUTypeEthernet
	PDUTypeUnstructured
)

// ContainerType is the PDU type of a PDU Session Container (TS 38.415).
type ContainerType uint8

const (
	ContainerNone ContainerType = iota
	ContainerDownlink
	ContainerUplink
)
