package srv6

import (
	"fmt"
	"slices"
	"strings"
)

// Behaviors lists all behaviours, in the order of their numbers.
func Behaviors() []Behavior {
	all := make([]Behavior, len(table))
	for i := range table {
		all[i] = table[i].Behavior
	}
	return all
}

// Flavors lists all flavors, in the order of their bits.
func Flavors() []Flavor { return []Flavor{PSP, USP, USD, NextCSID} }

// PDUTypes lists all PDU types that a translating behaviour accepts.
func PDUTypes() []PDUType {
	return []PDUType{PDUTypeIPv4, PDUTypeIPv6, PDUTypeIPv4v6, PDUTypeEthernet, PDUTypeUnstructured}
}

// ContainerTypes lists all values of pdu_session_container.
func ContainerTypes() []ContainerType {
	return []ContainerType{ContainerNone, ContainerDownlink, ContainerUplink}
}

// names joins the valid values for an error text.
func names[T fmt.Stringer](values []T) string {
	text := make([]string, len(values))
	for i, v := range values {
		text[i] = v.String()
	}
	return strings.Join(text, ", ")
}

// parse returns the value whose name is text, once fold has normalized both.
func parse[T fmt.Stringer](kind, text string, values []T, fold func(string) string) (T, error) {
	want := fold(text)
	i := slices.IndexFunc(values, func(v T) bool { return fold(v.String()) == want })
	if i < 0 {
		var none T
		return none, fmt.Errorf("%q is not a %s: give one of %s", text, kind, names(values))
	}
	return values[i], nil
}

func foldCase(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// String returns the RFC's name, such as End.M.GTP4.E.
func (b Behavior) String() string {
	if b == BehaviorNone {
		return "none"
	}
	if row, ok := Lookup(b); ok {
		return row.Name
	}
	return fmt.Sprintf("Behavior(%d)", uint8(b))
}

// ParseBehavior parses the RFC's name, in any case, with dots or underscores.
func ParseBehavior(s string) (Behavior, error) {
	return parse("behaviour", s, Behaviors(), func(s string) string { return strings.ReplaceAll(foldCase(s), "_", ".") })
}

// MarshalText returns the RFC's name, or nothing for BehaviorNone.
func (b Behavior) MarshalText() ([]byte, error) {
	if b == BehaviorNone {
		return []byte{}, nil
	}
	return marshal("behaviour", b, Behaviors())
}

// UnmarshalText is ParseBehavior. An empty text is BehaviorNone.
func (b *Behavior) UnmarshalText(text []byte) error {
	return unmarshal(b, text, ParseBehavior)
}

// String returns the RFC's name, such as NEXT-C-SID.
func (f Flavor) String() string { return nameOf("Flavor", f, flavorNames) }

var flavorNames = map[Flavor]string{PSP: "PSP", USP: "USP", USD: "USD", NextCSID: "NEXT-C-SID"}

// ParseFlavor parses the RFC's name, in any case, with hyphens, underscores or
// neither: IANA has NEXT-CSID for NEXT-C-SID.
func ParseFlavor(s string) (Flavor, error) {
	without := strings.NewReplacer("-", "", "_", "")
	return parse("flavor", s, Flavors(), func(s string) string { return without.Replace(foldCase(s)) })
}

// MarshalText returns the RFC's name.
func (f Flavor) MarshalText() ([]byte, error) { return marshal("flavor", f, Flavors()) }

// UnmarshalText is ParseFlavor.
func (f *Flavor) UnmarshalText(text []byte) error {
	v, err := ParseFlavor(string(text))
	if err == nil {
		*f = v
	}
	return err
}

// String returns the name in the configuration.
func (t PDUType) String() string { return nameOf("PDUType", t, pduTypeNames) }

var pduTypeNames = map[PDUType]string{PDUTypeNone: "none", PDUTypeIPv4: "ipv4", PDUTypeIPv6: "ipv6",
	PDUTypeIPv4v6: "ipv4v6", PDUTypeEthernet: "ethernet", PDUTypeUnstructured: "unstructured"}

// ParsePDUType parses a PDU type's name, in any case.
func ParsePDUType(s string) (PDUType, error) { return parse("PDU type", s, PDUTypes(), foldCase) }

// MarshalText returns the name, or nothing for PDUTypeNone.
func (t PDUType) MarshalText() ([]byte, error) {
	if t == PDUTypeNone {
		return []byte{}, nil
	}
	return marshal("PDU type", t, PDUTypes())
}

// UnmarshalText is ParsePDUType. An empty text is PDUTypeNone.
func (t *PDUType) UnmarshalText(text []byte) error {
	return unmarshal(t, text, ParsePDUType)
}

// String returns the name in the configuration.
func (t ContainerType) String() string { return nameOf("ContainerType", t, containerNames) }

var containerNames = map[ContainerType]string{ContainerNone: "none", ContainerDownlink: "downlink", ContainerUplink: "uplink"}

// ParseContainerType parses none, downlink or uplink, in any case.
func ParseContainerType(s string) (ContainerType, error) {
	return parse("PDU Session Container type", s, ContainerTypes(), foldCase)
}

// MarshalText returns the name.
func (t ContainerType) MarshalText() ([]byte, error) {
	return marshal("PDU Session Container type", t, ContainerTypes())
}

// UnmarshalText is ParseContainerType. An empty text is ContainerNone.
func (t *ContainerType) UnmarshalText(text []byte) error {
	return unmarshal(t, text, ParseContainerType)
}

// nameOf is the name of a value, or of its type and number where it has none.
func nameOf[T ~uint8](kind string, v T, names map[T]string) string {
	if name, ok := names[v]; ok {
		return name
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// marshal is the name of one of the values.
func marshal[T interface {
	~uint8
	fmt.Stringer
}](kind string, v T, values []T) ([]byte, error) {
	if !slices.Contains(values, v) {
		return nil, fmt.Errorf("%s %d is unknown", kind, uint8(v))
	}
	return []byte(v.String()), nil
}

// unmarshal sets v to what text says, or to the zero value if text is empty. After
// an error v is unchanged.
func unmarshal[T any](v *T, text []byte, parse func(string) (T, error)) error {
	var parsed T
	if len(text) > 0 {
		var err error
		if parsed, err = parse(string(text)); err != nil {
			return err
		}
	}
	*v = parsed
	return nil
}
