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

// foldBehavior makes End.M.GTP4.E and end_m_gtp4_e one name.
func foldBehavior(s string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "_", ".")
}

// foldFlavor makes NEXT-C-SID, NEXT-CSID (as IANA has it) and next_csid one
// name.
func foldFlavor(s string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(strings.TrimSpace(s)))
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
	return parse("behaviour", s, Behaviors(), foldBehavior)
}

// MarshalText returns the RFC's name, or nothing for BehaviorNone.
func (b Behavior) MarshalText() ([]byte, error) {
	if b == BehaviorNone {
		return []byte{}, nil
	}
	if _, ok := Lookup(b); !ok {
		return nil, fmt.Errorf("behaviour %d is unknown", uint8(b))
	}
	return []byte(b.String()), nil
}

// UnmarshalText is ParseBehavior. An empty text is BehaviorNone.
func (b *Behavior) UnmarshalText(text []byte) error {
	return unmarshal(b, text, ParseBehavior)
}

// String returns the RFC's name, such as NEXT-C-SID.
func (f Flavor) String() string {
	switch f {
	case PSP:
		return "PSP"
	case USP:
		return "USP"
	case USD:
		return "USD"
	case NextCSID:
		return "NEXT-C-SID"
	}
	return fmt.Sprintf("Flavor(%d)", uint8(f))
}

// ParseFlavor parses the RFC's name, in any case, with hyphens, underscores or
// neither.
func ParseFlavor(s string) (Flavor, error) { return parse("flavor", s, Flavors(), foldFlavor) }

// MarshalText returns the RFC's name.
func (f Flavor) MarshalText() ([]byte, error) {
	if !slices.Contains(Flavors(), f) {
		return nil, fmt.Errorf("flavor %d is unknown", uint8(f))
	}
	return []byte(f.String()), nil
}

// UnmarshalText is ParseFlavor.
func (f *Flavor) UnmarshalText(text []byte) error {
	v, err := ParseFlavor(string(text))
	if err == nil {
		*f = v
	}
	return err
}

// String returns the name in the configuration.
func (t PDUType) String() string {
	switch t {
	case PDUTypeNone:
		return "none"
	case PDUTypeIPv4:
		return "ipv4"
	case PDUTypeIPv6:
		return "ipv6"
	case PDUTypeIPv4v6:
		return "ipv4v6"
	case PDUTypeEthernet:
		return "ethernet"
	case PDUTypeUnstructured:
		return "unstructured"
	}
	return fmt.Sprintf("PDUType(%d)", uint8(t))
}

// ParsePDUType parses a PDU type's name, in any case.
func ParsePDUType(s string) (PDUType, error) { return parse("PDU type", s, PDUTypes(), foldCase) }

// MarshalText returns the name, or nothing for PDUTypeNone.
func (t PDUType) MarshalText() ([]byte, error) {
	if t == PDUTypeNone {
		return []byte{}, nil
	}
	if !slices.Contains(PDUTypes(), t) {
		return nil, fmt.Errorf("PDU type %d is unknown", uint8(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText is ParsePDUType. An empty text is PDUTypeNone.
func (t *PDUType) UnmarshalText(text []byte) error {
	return unmarshal(t, text, ParsePDUType)
}

// String returns the name in the configuration.
func (t ContainerType) String() string {
	switch t {
	case ContainerNone:
		return "none"
	case ContainerDownlink:
		return "downlink"
	case ContainerUplink:
		return "uplink"
	}
	return fmt.Sprintf("ContainerType(%d)", uint8(t))
}

// ParseContainerType parses none, downlink or uplink, in any case.
func ParseContainerType(s string) (ContainerType, error) {
	return parse("PDU Session Container type", s, ContainerTypes(), foldCase)
}

// MarshalText returns the name.
func (t ContainerType) MarshalText() ([]byte, error) {
	if !slices.Contains(ContainerTypes(), t) {
		return nil, fmt.Errorf("PDU Session Container type %d is unknown", uint8(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText is ParseContainerType. An empty text is ContainerNone.
func (t *ContainerType) UnmarshalText(text []byte) error {
	return unmarshal(t, text, ParseContainerType)
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
