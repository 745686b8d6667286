// Package tally reads structs of counters by the metric names in their tags.
package tally

import (
	"iter"
	"reflect"
	"sync/atomic"
)

// All yields the counters of a struct, given by its address, with their metric names, in the
// order of the fields: those of type atomic.Uint64 with a tag `metric`.
func All(counters any) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		all := reflect.ValueOf(counters).Elem()
		for i := range all.NumField() {
			name := all.Type().Field(i).Tag.Get("metric")
			if name == "" {
				continue
			}
			v, is := all.Field(i).Addr().Interface().(*atomic.Uint64)
			if is && !yield(name, v.Load()) {
				return
			}
		}
	}
}
