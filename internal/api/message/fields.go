package message

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

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
		p := pair{index: i}
		for _, name := range names(f) {
			if p.field = m.Fields().ByName(protoreflect.Name(name)); p.field != nil {
				break
			}
		}
		if p.field == nil && !f.Anonymous {
			return nil, fmt.Errorf("message %s has no field for %s of %s", m.FullName(), f.Name, t)
		}
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p.omitZero = strings.Contains(options, "omitzero") || f.Type == reflect.TypeFor[time.Time]()
		pairs = append(pairs, p)
	}
	known.Store(key, pairs)
	return pairs, nil
}

// names are those that a field may have in a message, the best first.
func names(f reflect.StructField) []string {
	if f.Anonymous {
		return []string{"resource", strings.ToLower(f.Name)}
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		name = strings.ToLower(f.Name)
	}
	return []string{name, name + "_ns"}
}
