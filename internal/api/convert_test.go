package api

import (
	"encoding"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/srv6"
)

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

// Every field of the configuration is in the messages and every field of the
// messages is in the configuration, by the same name and of the kind that
// carries it: this is what lets one conversion serve all.
func TestFieldsAgree(t *testing.T) {
	agree(t, "config", reflect.TypeFor[config.Config](), (&pb.Config{}).ProtoReflect().Descriptor())
}

func agree(t *testing.T, path string, typ reflect.Type, m protoreflect.MessageDescriptor) {
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || f.Anonymous { // the fields of an embedded struct follow
			continue
		}
		names[name] = true
		at := path + "." + name
		field := m.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			t.Errorf("%s: %s has no such field", at, m.FullName())
			continue
		}
		goType, list := f.Type, false
		if goType.Kind() == reflect.Slice && !reflect.PointerTo(goType).Implements(textType) {
			goType, list = goType.Elem(), true
		}
		if goType.Kind() == reflect.Pointer {
			goType = goType.Elem()
		}
		if list != field.IsList() {
			t.Errorf("%s: a list on one side only", at)
		}
		want := map[reflect.Kind]protoreflect.Kind{
			reflect.String: protoreflect.StringKind, reflect.Bool: protoreflect.BoolKind, reflect.Uint8: protoreflect.Uint32Kind,
			reflect.Uint16: protoreflect.Uint32Kind, reflect.Uint32: protoreflect.Uint32Kind,
			// Rates in kbit/s. In JSON a uint64 would be text.
			reflect.Uint64: protoreflect.Uint32Kind, reflect.Struct: protoreflect.MessageKind,
			reflect.Int: protoreflect.Int32Kind, reflect.Map: protoreflect.MessageKind,
		}[goType.Kind()]
		if reflect.PointerTo(goType).Implements(textType) {
			want = protoreflect.StringKind
		}
		if field.Kind() != want {
			t.Errorf("%s: %s, want %s for %s", at, field.Kind(), want, goType)
		} else if goType.Kind() == reflect.Map {
			if !field.IsMap() || field.MapValue().Kind() != protoreflect.StringKind {
				t.Errorf("%s: no map of texts", at)
			}
		} else if want == protoreflect.MessageKind {
			agree(t, at, goType, field.Message())
		}
	}
	for i := range m.Fields().Len() {
		if name := string(m.Fields().Get(i).Name()); !names[name] {
			t.Errorf("%s: %s has %s, which the configuration does not", path, m.FullName(), name)
		}
	}
}

// filled is a configuration in which every field is set.
func filled(t *testing.T) *config.Config {
	t.Helper()
	c := &config.Config{}
	n := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		n++
		switch v.Interface().(type) {
		case netip.Addr:
			v.Set(reflect.ValueOf(netip.MustParseAddr("2001:db8::").Next()))
			return
		case netip.Prefix:
			v.Set(reflect.ValueOf(netip.MustParsePrefix("2001:db8:1::/48")))
			return
		case config.CPUs:
			v.Set(reflect.ValueOf(config.CPUs{0, 2, 3}))
			return
		case srv6.Flavor:
			v.Set(reflect.ValueOf(srv6.NextCSID))
			return
		case srv6.PDUType, srv6.ContainerType, srv6.Behavior:
			v.SetUint(1)
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).Tag.Get("json") != "-" {
					fill(v.Field(i))
				}
			}
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0))
			fill(v.Index(1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"app": "web"}))
		case reflect.Int, reflect.Int64:
			v.SetInt(int64(n%250 + 1))
		case reflect.String:
			v.SetString("text")
		case reflect.Bool:
			v.SetBool(true)
		default:
			v.SetUint(uint64(n%250 + 1))
		}
	}
	fill(reflect.ValueOf(c).Elem())
	return c
}

func TestRoundTrip(t *testing.T) {
	want := filled(t)
	m := &pb.Config{}
	if err := message.Encode(want, m); err != nil {
		t.Fatal(err)
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	received := &pb.Config{}
	if err := proto.Unmarshal(wire, received); err != nil {
		t.Fatal(err)
	}
	got, err := configOf(received)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

// A client that knows more than the daemon is refused, not half obeyed.
func TestUnknownFields(t *testing.T) {
	m := &pb.Config{Sids: []*pb.LocalSID{{Sid: "2001:db8::/64", Behavior: "End"}}}
	m.Sids[0].ProtoReflect().SetUnknown(protoreflect.RawFields{0xf8, 0x07, 0x01}) // field 127, varint 1
	if _, err := configOf(m); err == nil || !strings.Contains(err.Error(), "LocalSID") {
		t.Errorf("%v", err)
	}
}
