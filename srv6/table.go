package srv6

import "slices"

// Row describes a behaviour.
type Row struct {
	Behavior    Behavior
	Name        string // the RFC's
	Section     string // where the RFC defines it
	Description string

	// Headend says that packets are steered into the behaviour: it belongs to a
	// policy or a steering entry, never to a SID.
	Headend bool

	// Required, OneOf (at least one of them) and Optional list the parameters by
	// their JSON names: fields of LocalSID or, for a headend, of the policy or
	// steering entry. None of them lists block_length, which belongs to the flavor
	// NEXT-C-SID.
	Required []string
	OneOf    []string
	Optional []string

	// Flavors lists the flavors that the behaviour can have.
	Flavors []Flavor

	// MaxLength is the longest LOC:FUNC, in bits. The argument needs the rest.
	MaxLength int

	// Headroom is how many bytes a frame grows at most, with the longest segment
	// list. A negative value says how many bytes it shrinks at least.
	Headroom int

	// Example is the part of a configuration, as YAML, that uses the behaviour.
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

// Lookup returns the row of b. ok is false for an unknown behaviour.
func Lookup(b Behavior) (Row, bool) {
	if b == BehaviorNone || int(b) > len(table) {
		return Row{}, false
	}
	return table[b-1], true
}

// Table returns all rows, in the order of the behaviours' numbers.
func Table() []Row { return slices.Clone(table) }

// table is in the order of the constants: Lookup finds a row by its index.
var table = slices.Concat(endpointRows, decapsulationRows, bindingRows, mobileRows, fromGTPURows, toGTPURows, headendRows)
