package cli

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/session"
)

// largest is 2^64-1, the largest identifier. Readers of JSON whose numbers are doubles, such as
// jq before 1.7 and JavaScript, take it for 2^64.
const largest = `"18446744073709551615"`

// Identifiers that may be larger than 2^53 are text in JSON and YAML, and the same when they are
// read again.
func TestIdentifiers(t *testing.T) {
	const id = math.MaxUint64
	for name, v := range map[string]any{
		"session":         &agent.SessionStatus{SEID: id, CPSEID: id},
		"rules":           &session.Session{SEID: id, CPSEID: id},
		"packet in trace": &agent.TraceEvent{Session: id},
	} {
		for _, format := range []printer.Format{printer.JSON, printer.YAML} {
			var out strings.Builder
			if err := format.Print(&out, v, nil); err != nil {
				t.Fatal(err)
			}
			want := strings.Count(out.String(), largest)
			if want == 0 || strings.Count(out.String(), "18446744073709551615") != want {
				t.Errorf("%s as %s: %s", name, format, out.String())
			}
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := json.Unmarshal(data, again); err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%s: read again: %v: %+v", name, err, again)
		}
	}
}

// A field that is named as an identifier of 64 bits is tagged as one, in all that commands print.
func TestIdentifiersAreTagged(t *testing.T) {
	seen := map[reflect.Type]bool{}
	found := 0
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Func: // what a stream is given to
			for i := range of.NumIn() {
				walk(of.In(i))
			}
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			walk(of.Elem())
		case reflect.Struct:
			if seen[of] {
				return
			}
			seen[of] = true
			for i := range of.NumField() {
				f := of.Field(i)
				name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				isIdentifier := strings.HasSuffix(name, "seid") || name == "session" || name == "id"
				if f.Type.Kind() == reflect.Uint64 && isIdentifier {
					found++
					if !strings.Contains(options, "string") {
						t.Errorf("%s.%s: the tag needs the option string", of, f.Name)
					}
				}
				walk(f.Type)
			}
		}
	}
	client := reflect.TypeFor[*api.Client]()
	for i := range client.NumMethod() {
		of := client.Method(i).Type
		for j := range of.NumOut() {
			walk(of.Out(j))
		}
		for j := 1; j < of.NumIn(); j++ {
			if of.In(j).Kind() == reflect.Func {
				walk(of.In(j))
			}
		}
	}
	walk(reflect.TypeFor[tracedPacket]())
	walk(reflect.TypeFor[session.Session]())
	if found < 5 {
		t.Errorf("only %d identifiers: are these the types?", found)
	}
}
