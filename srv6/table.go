package srv6

// Row is what is to be known about one behaviour.
type Row struct {
	Behavior    Behavior
	Name        string // the RFC's
	Section     string // where the RFC defines it
	Description string

	// Headend says that packets are steered into it: it is a property of a
	// policy or a steering entry, and no SID can have it.
	Headend bool

	// Required, OneOf (at least one of them) and Optional are the parameters,
	// by their JSON names: of LocalSID, or for a headend of the policy or
	// steering entry. block_length belongs to the flavor NEXT-C-SID and stands
	// in none of them.
	Required []string
	OneOf    []string
	Optional []string

	// Flavors that it can have.
	Flavors []Flavor

	// MaxLength is the longest LOC:FUNC in bits: the argument needs the rest.
	MaxLength int

	// Headroom is by how many bytes a frame grows at most (with the longest
	// segment list); negative: by how many it shrinks at least.
	Headroom int

	// Example is YAML: the part of a configuration that binds it.
	Example string
}

// Sizes of headers in bytes, and of arguments in bits, that the table counts
// with.
const (
	ethernetLength = 14
	ipv4Length     = 20
	ipv6Length     = 40
	udpLength      = 8
	gtpuLength     = 8  // without optional fields
	gtpuPushed     = 16 // with a PDU Session Container
	longestList    = 12 // srpolicy.MaxSegments

	// ArgsMobSessionBits is the length of Args.Mob.Session (RFC 9433 6.1).
	ArgsMobSessionBits = 40
	ipv4Bits           = 32
	sidBits            = 128
)

// encapsLength is of an outer IPv6 header and its SRH of n segments.
func encapsLength(n int) int {
	if n == 0 {
		return ipv6Length
	}
	return ipv6Length + srhFixedLength + segmentLength*n
}

var (
	endFlavors   = []Flavor{PSP, USP, USD, NextCSID}
	limitFlavors = []Flavor{PSP, USP, USD}
	// A SID of a decapsulating behaviour may stand behind others in a
	// NEXT-C-SID container (uDT4, uDT6, uDT46, ...).
	decapsulationFlavors = []Flavor{NextCSID}
	allowUpperLayer      = []string{"allow_upper_layer"}
)

// Lookup finds the row of b.
func Lookup(b Behavior) (Row, bool) {
	if b == BehaviorNone || int(b) > len(table) {
		return Row{}, false
	}
	return table[b-1], true
}

// Table is every row, in the order of the behaviours' numbers.
func Table() []Row { return append([]Row(nil), table...) }

// table is in the order of the constants: Lookup finds a row by its index.
var table = append(append(endpointRows(), mobileRows()...), headendRows()...)
