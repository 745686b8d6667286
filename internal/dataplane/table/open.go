package table

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
)

// Open opens the tables that the fields of a struct point to: each is an Array, a
// Hash or a plain map, or a struct of them. The field's tag names the map and, where
// there is one, the configuration's name for its limit: `map:"route4" limit:"routes"`.
func Open(tables any, maps map[string]*ebpf.Map) error {
	var errs []error
	each(tables, func(tag reflect.StructTag, field reflect.Value) {
		name := tag.Get("map")
		m := maps[name]
		if field.Type() == reflect.TypeOf(m) {
			field.Set(reflect.ValueOf(m))
			return
		}
		t := reflect.New(field.Type().Elem())
		field.Set(t)
		if err := t.Interface().(opener).open(m, name, tag.Get("limit")); err != nil {
			errs = append(errs, fmt.Errorf("table %s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

type opener interface {
	open(m *ebpf.Map, name, limit string) error
	close() error
}

// Close ends the use of what Open opened. Plain maps stay open.
func Close(tables any) error {
	var errs []error
	each(tables, func(_ reflect.StructTag, field reflect.Value) {
		if t, ok := field.Interface().(opener); ok && !field.IsNil() {
			errs = append(errs, t.close())
		}
	})
	return errors.Join(errs...)
}

// HashUsage says how full the hashes among some tables are, by the names of their
// maps.
func HashUsage(tables any, out map[string]Usage) {
	each(tables, func(tag reflect.StructTag, field reflect.Value) {
		if hash, ok := field.Interface().(interface{ Usage() Usage }); ok {
			out[tag.Get("map")] = hash.Usage()
		}
	})
}

// each calls f for the fields of a struct, and of structs in it.
func each(tables any, f func(reflect.StructTag, reflect.Value)) {
	for field, value := range reflect.ValueOf(tables).Elem().Fields() {
		if value.Kind() == reflect.Struct {
			each(value.Addr().Interface(), f)
		} else {
			f(field.Tag, value)
		}
	}
}
