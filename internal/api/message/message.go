package message

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/culvert-net/culvert/internal/config"
)

// Encode sets the fields of m from v, a struct or a pointer to one. It fails if
// a value of v has no text, or m no field for it.
func Encode(v any, m proto.Message) error {
	return encode(reflect.Indirect(reflect.ValueOf(v)), m.ProtoReflect())
}

// EncodeList appends a message for each struct of a list to the list in m, which is
// the first field of m.
func EncodeList[T any](list []T, m proto.Message) error {
	to := m.ProtoReflect()
	if len(list) == 0 {
		return nil
	}
	messages := to.Mutable(to.Descriptor().Fields().ByNumber(1)).List()
	for i := range list {
		if err := encode(reflect.ValueOf(&list[i]).Elem(), messages.AppendMutable().Message()); err != nil {
			return err
		}
	}
	return nil
}

// Decode returns the struct that m describes. Lists that m does not have are
// nil, maps are empty. Its error is config.Errors if text in m cannot be read.
func Decode[T any](m proto.Message) (T, error) {
	var v T
	err := decode(m.ProtoReflect(), reflect.ValueOf(&v).Elem())
	return v, err
}

// DecodeList returns a struct for each message of the list in m, which is the first
// field of m. It is never nil.
func DecodeList[T any](m proto.Message) ([]T, error) {
	from := m.ProtoReflect()
	messages := from.Get(from.Descriptor().Fields().ByNumber(1)).List()
	out := make([]T, messages.Len())
	for i := range out {
		if err := decode(messages.Get(i).Message(), reflect.ValueOf(&out[i]).Elem()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pair is a field of a struct with its field of a message.
type pair struct {
	index    int
	field    protoreflect.FieldDescriptor // nil: the fields of an embedded struct are the message's own
	omitZero bool
}

// known holds the pairs of each struct and message that were seen. They depend
// on types only.
var known sync.Map // of pairsKey: []pair

type pairsKey struct {
	t reflect.Type
	m protoreflect.FullName
}

// pairsOf returns the pairs of a struct and a message. It fails if the message
// has no field for one of the struct's.
func pairsOf(t reflect.Type, m protoreflect.MessageDescriptor) ([]pair, error) {
	key := pairsKey{t, m.FullName()}
	if found, ok := known.Load(key); ok {
		return found.([]pair), nil
	}
	var pairs []pair
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			continue // it stays on its side
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		names := []string{name, name + "_ns"}
		if f.Anonymous {
			names = []string{"resource", strings.ToLower(f.Name)}
		}
		p := pair{index: i, omitZero: strings.Contains(options, "omitzero") || f.Type == reflect.TypeFor[time.Time]()}
		for _, name := range names { // the best first
			if p.field = m.Fields().ByName(protoreflect.Name(name)); p.field != nil {
				break
			}
		}
		if p.field == nil && !f.Anonymous {
			return nil, fmt.Errorf("message %s has no field for %s of %s", m.FullName(), f.Name, t)
		}
		pairs = append(pairs, p)
	}
	known.Store(key, pairs)
	return pairs, nil
}

func encode(v reflect.Value, m protoreflect.Message) error {
	pairs, err := pairsOf(v.Type(), m.Descriptor())
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if p.field == nil {
			err = encode(v.Field(p.index), m)
		} else {
			err = encodeField(v.Field(p.index), m, p)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", v.Type().Field(p.index).Name, err)
		}
	}
	return nil
}

func encodeField(f reflect.Value, m protoreflect.Message, p pair) error {
	isStruct := f.Kind() == reflect.Struct && p.field.Message() != nil
	if f.IsZero() && (!isStruct || p.omitZero) {
		return nil
	}
	switch {
	case p.field.IsList():
		list := m.Mutable(p.field).List()
		for i := range f.Len() {
			value, err := encodeValue(f.Index(i), list.NewElement())
			if err != nil {
				return err
			}
			list.Append(value)
		}
		return nil
	case p.field.IsMap():
		to := m.Mutable(p.field).Map()
		for _, key := range f.MapKeys() {
			value, err := encodeValue(f.MapIndex(key), to.NewValue())
			if err != nil {
				return err
			}
			to.Set(protoreflect.ValueOfString(key.String()).MapKey(), value)
		}
		return nil
	}
	value, err := encodeValue(f, m.NewField(p.field))
	if err == nil && (p.field.HasPresence() || !value.Equal(p.field.Default())) {
		m.Set(p.field, value)
	}
	return err
}

// encodeValue returns f as a value of the type of zero, which it fills if it is a
// message.
func encodeValue(f reflect.Value, zero protoreflect.Value) (protoreflect.Value, error) {
	f = reflect.Indirect(f)
	switch to := zero.Interface().(type) {
	case protoreflect.Message:
		if t, ok := f.Interface().(time.Time); ok {
			return protoreflect.ValueOfMessage(timestamppb.New(t).ProtoReflect()), nil
		}
		return zero, encode(f, to)
	case string:
		if t, ok := f.Interface().(encoding.TextMarshaler); ok {
			text, err := t.MarshalText()
			return protoreflect.ValueOfString(string(text)), err
		}
	}
	// A number, a truth value, bytes, or text (which JSON is, too).
	return protoreflect.ValueOf(f.Convert(reflect.TypeOf(zero.Interface())).Interface()), nil
}

func decode(m protoreflect.Message, v reflect.Value) error {
	pairs, err := pairsOf(v.Type(), m.Descriptor())
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if p.field == nil {
			err = decode(m, v.Field(p.index))
		} else {
			err = decodeField(m, v.Field(p.index), p.field)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeField(m protoreflect.Message, f reflect.Value, field protoreflect.FieldDescriptor) (err error) {
	if field.IsMap() {
		f.Set(reflect.MakeMap(f.Type()))
	}
	if !m.Has(field) {
		return nil
	}
	switch {
	case field.IsList():
		list := m.Get(field).List()
		f.Set(reflect.MakeSlice(f.Type(), list.Len(), list.Len()))
		for i := range list.Len() {
			if err := decodeValue(list.Get(i), f.Index(i), field); err != nil {
				return err
			}
		}
		return nil
	case field.IsMap():
		m.Get(field).Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			v := reflect.New(f.Type().Elem()).Elem()
			err = decodeValue(value, v, field.MapValue())
			f.SetMapIndex(reflect.ValueOf(key.String()).Convert(f.Type().Key()), v)
			return err == nil
		})
		return err
	}
	if f.Kind() == reflect.Pointer {
		f.Set(reflect.New(f.Type().Elem()))
		f = f.Elem()
	}
	return decodeValue(m.Get(field), f, field)
}

func decodeValue(value protoreflect.Value, f reflect.Value, field protoreflect.FieldDescriptor) error {
	switch x := value.Interface().(type) {
	case protoreflect.Message:
		if t, ok := x.Interface().(*timestamppb.Timestamp); ok {
			f.Set(reflect.ValueOf(t.AsTime()))
			return nil
		}
		return decode(x, f)
	case string:
		if t, ok := f.Addr().Interface().(encoding.TextUnmarshaler); ok {
			return unmarshalText(t, x, string(field.Name()))
		}
	}
	f.Set(reflect.ValueOf(value.Interface()).Convert(f.Type()))
	return nil
}

func unmarshalText(t encoding.TextUnmarshaler, text, field string) error {
	err := t.UnmarshalText([]byte(text))
	if err == nil {
		return nil
	}
	problem := config.Error{Field: field, Problem: fmt.Sprintf("%q: %v", text, err)}
	switch t.(type) {
	case *netip.Prefix:
		problem.Problem, problem.Fix = fmt.Sprintf("%q is not a prefix", text), "a prefix such as 2001:db8::/32"
	case *netip.Addr:
		problem.Problem, problem.Fix = fmt.Sprintf("%q is not an address", text), "an address such as 10.45.0.1"
	}
	return config.Errors{problem}
}
