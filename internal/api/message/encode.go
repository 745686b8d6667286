package message

import (
	"encoding"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Encode sets the fields of m from v, a struct or a pointer to one. It fails if
// a value of v has no text, or m no field for it.
func Encode(v any, m proto.Message) error {
	return encode(reflect.Indirect(reflect.ValueOf(v)), m.ProtoReflect())
}

// EncodeList returns a message for each struct of a list.
func EncodeList[T, M any, P interface {
	*M
	proto.Message
}](list []T) ([]P, error) {
	out := make([]P, 0, len(list))
	for i := range list {
		m := P(new(M))
		if err := Encode(&list[i], m); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
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
			value, err := encodeValue(f.Index(i), p.field, list.NewElement)
			if err != nil {
				return err
			}
			list.Append(value)
		}
		return nil
	case p.field.IsMap():
		to := m.Mutable(p.field).Map()
		for _, key := range f.MapKeys() {
			value, err := encodeValue(f.MapIndex(key), p.field.MapValue(), to.NewValue)
			if err != nil {
				return err
			}
			to.Set(protoreflect.ValueOfString(key.String()).MapKey(), value)
		}
		return nil
	}
	value, err := encodeValue(f, p.field, func() protoreflect.Value { return m.NewField(p.field) })
	if err == nil && (p.field.HasPresence() || !value.Equal(p.field.Default())) {
		m.Set(p.field, value)
	}
	return err
}

// encodeValue is f as a value of a field; empty makes a message of it.
func encodeValue(f reflect.Value, field protoreflect.FieldDescriptor, empty func() protoreflect.Value) (protoreflect.Value, error) {
	f = reflect.Indirect(f)
	switch field.Kind() {
	case protoreflect.MessageKind:
		if t, ok := f.Interface().(time.Time); ok {
			return protoreflect.ValueOfMessage(timestamppb.New(t).ProtoReflect()), nil
		}
		value := empty()
		return value, encode(f, value.Message())
	case protoreflect.StringKind:
		text, err := textOf(f)
		return protoreflect.ValueOfString(text), err
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(f.Bytes()), nil
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(f.Bool()), nil
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number(f))), nil
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(number(f)), nil
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number(f))), nil
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(number(f))), nil
	}
	return protoreflect.Value{}, fmt.Errorf("fields of kind %s are not supported", field.Kind())
}

func textOf(f reflect.Value) (string, error) {
	if t, ok := f.Interface().(encoding.TextMarshaler); ok {
		text, err := t.MarshalText()
		return string(text), err
	}
	if f.Kind() == reflect.Slice { // JSON
		return string(f.Bytes()), nil
	}
	return f.String(), nil
}

// number is any integer, in 64 bits.
func number(f reflect.Value) uint64 {
	if f.CanInt() {
		return uint64(f.Int())
	}
	return f.Uint()
}
