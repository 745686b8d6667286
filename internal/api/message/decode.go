package message

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/culvert-net/culvert/internal/config"
)

// Decode returns the struct that m describes. Lists that m does not have are
// nil, maps are empty. Its error is config.Errors if text in m cannot be read.
func Decode[T any](m proto.Message) (T, error) {
	var v T
	err := decode(m.ProtoReflect(), reflect.ValueOf(&v).Elem())
	return v, err
}

// DecodeList returns a struct for each message of a list. It is never nil.
func DecodeList[T any, M proto.Message](list []M) ([]T, error) {
	out := make([]T, len(list))
	for i, m := range list {
		if err := decode(m.ProtoReflect(), reflect.ValueOf(&out[i]).Elem()); err != nil {
			return nil, err
		}
	}
	return out, nil
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

func decodeField(m protoreflect.Message, f reflect.Value, field protoreflect.FieldDescriptor) error {
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
		var err error
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
		return setText(f, x, string(field.Name()))
	case []byte:
		f.SetBytes(x)
	case bool:
		f.SetBool(x)
	case uint32:
		setNumber(f, uint64(x))
	case uint64:
		setNumber(f, x)
	case int32:
		setNumber(f, uint64(x))
	case int64:
		setNumber(f, uint64(x))
	default:
		return fmt.Errorf("fields of kind %s are not supported", field.Kind())
	}
	return nil
}

func setText(f reflect.Value, text, field string) error {
	t, ok := f.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case !ok && f.Kind() == reflect.Slice: // JSON
		f.SetBytes([]byte(text))
		return nil
	case !ok:
		f.SetString(text)
		return nil
	}
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

func setNumber(f reflect.Value, n uint64) {
	if f.CanInt() {
		f.SetInt(int64(n))
		return
	}
	f.SetUint(n)
}
