package srv6

import (
	"fmt"
	"net/netip"
	"strings"
)

// FieldError says what is wrong with a field of a resource, and what to write
// instead. Field is the path of JSON names from the resource on, such as
// flavors[1].
type FieldError struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
	Fix     string `json:"fix"`
}

// Error returns "field: problem: fix".
func (e FieldError) Error() string {
	return e.Field + ": " + e.Problem + ": " + e.Fix
}

// MaxNameLength is the longest name of a policy, tunnel or locator.
const MaxNameLength = 63

// CheckName checks a resource's name. Command lines, metric labels and keys contain
// names, so only plain ones are valid.
func CheckName(field, name string) []FieldError {
	const fix = "give 1 to 63 letters, digits, '-', '_', '.' or ':', a letter or digit first"
	switch {
	case name == "":
		return []FieldError{{field, "is missing", fix}}
	case len(name) > MaxNameLength:
		return []FieldError{{field, fmt.Sprintf("has %d characters", len(name)), fix}}
	}
	for i := range len(name) {
		c := name[i]
		letterOrDigit := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letterOrDigit && (i == 0 || !strings.ContainsRune("-_.:", rune(c))) {
			return []FieldError{{field, fmt.Sprintf("%q cannot have %q at position %d", name, c, i+1), fix}}
		}
	}
	return nil
}

// MaxTable is the largest number of a routing table: the data path needs the three
// bits above it to tell tables apart.
const MaxTable = 1<<29 - 1

// CheckTable checks the kernel's number of a routing table; 0 is none.
func CheckTable(field string, table uint32) []FieldError {
	if table <= MaxTable {
		return nil
	}
	return []FieldError{{field, fmt.Sprintf("%d is too large", table), fmt.Sprintf("give a routing table from 1 to %d", MaxTable)}}
}

// CheckUnicast6 checks that addr is a routable IPv6 unicast address, as a SID and an
// outer source must be.
func CheckUnicast6(field string, addr netip.Addr) []FieldError {
	const fix = "give a global or unique local IPv6 unicast address, such as 2001:db8:1::1"
	problem := ""
	switch {
	case !addr.IsValid():
		problem = "is missing"
	case addr.Zone() != "":
		problem = fmt.Sprintf("%s has a zone", addr)
	case addr.Is4():
		problem = fmt.Sprintf("%s is an IPv4 address", addr)
	case addr.Is4In6():
		problem = fmt.Sprintf("%s is an IPv4-mapped address", addr)
	default:
		problem = notRoutable(addr)
	}
	if problem == "" {
		return nil
	}
	return []FieldError{{field, problem, fix}}
}

// notRoutable says why packets to addr never leave for another node. It returns nil
// if they do.
func notRoutable(addr netip.Addr) string {
	kind := ""
	switch {
	case addr.IsUnspecified():
		kind = "the unspecified address"
	case addr.IsLoopback():
		kind = "a loopback address"
	case addr.IsMulticast():
		kind = "a multicast address"
	case addr.IsLinkLocalUnicast():
		kind = "a link-local address"
	default:
		return ""
	}
	return fmt.Sprintf("%s is %s", addr, kind)
}

// CheckUnicast checks that addr is a routable unicast address of either family, as
// the peer of a tunnel must be.
func CheckUnicast(field string, addr netip.Addr) []FieldError {
	if !addr.Is4() {
		return CheckUnicast6(field, addr)
	}
	problem := notRoutable(addr)
	if addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		problem = fmt.Sprintf("%s is the broadcast address", addr)
	}
	if problem == "" {
		return nil
	}
	return []FieldError{{field, problem, "give an IPv4 or IPv6 unicast address that is routed"}}
}

// CheckPrefix checks that p is a prefix of routable addresses without host bits.
func CheckPrefix(field string, p netip.Prefix) []FieldError {
	switch {
	case !p.IsValid():
		return []FieldError{{field, "is missing", "give a prefix, such as 2001:db8:1::/48"}}
	case p.Addr().Is4In6():
		return []FieldError{{field, fmt.Sprintf("%s is IPv4-mapped", p), "write an IPv4 prefix as 192.0.2.0/24"}}
	case p.Masked() != p:
		return []FieldError{{field, fmt.Sprintf("%s has bits behind its length", p), "write " + p.Masked().String()}}
	}
	return nil
}
