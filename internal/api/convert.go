package api

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/config"
)

var protoNames = protojson.MarshalOptions{UseProtoNames: true}

// configOf decodes a request's configuration as strictly as a file's.
func configOf(m *pb.Config) (*config.Config, error) {
	if name := unknownIn(m.ProtoReflect()); name != "" {
		return nil, config.Errors{{Field: name, Problem: "holds a field that this culvert does not know",
			Fix: "use a client of the daemon's version"}}
	}
	data, err := protoNames.Marshal(m)
	if err != nil {
		return nil, err
	}
	return config.Decode(data)
}

// unknownIn names a message in m that has fields which the schema does not
// know: a newer client asked for something that would silently be left out.
func unknownIn(m protoreflect.Message) (name string) {
	if len(m.GetUnknown()) > 0 {
		return string(m.Descriptor().Name())
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := 0; i < v.List().Len() && name == ""; i++ {
				name = unknownIn(v.List().Get(i).Message())
			}
		default:
			name = unknownIn(v.Message())
		}
		return name == ""
	})
	return name
}
