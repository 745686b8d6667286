package api

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
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
	_ = protorange.Range(m, func(v protopath.Values) error {
		if in, ok := v.Index(-1).Value.Interface().(protoreflect.Message); ok && len(in.GetUnknown()) > 0 {
			name = string(in.Descriptor().Name())
			return protorange.Terminate
		}
		return nil
	})
	return name
}
