package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/api/watch"
	"github.com/culvert-net/culvert/internal/config"
)

// maxRequest bounds a request: a configuration with every table full fits.
const maxRequest = 64 << 20

// Examiner makes the checks of `culvert doctor`.
type Examiner func(ctx context.Context, e Examination) ([]Finding, error)

// Examination says what to check besides the machine itself.
type Examination struct {
	Interfaces []string
	// GTPUOverIPv4 says that the configuration sends GTP-U from IPv4 addresses.
	GTPUOverIPv4 bool
	// Running is the configuration; nil: none is known.
	Running *config.Config
	Overlay *Membership // nil unless the node is known to be in a cluster
}

// Finding is what one check of the machine found.
type Finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, warn or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
	// Command fixes the problem; empty if no single command does.
	Command []string `json:"command,omitempty"`
}

type handler struct {
	agent   agent.Service
	examine Examiner
	watcher *watch.Watcher
	back    Backer // nil: no backups
}

// Handler serves the management API of an agent.
type Handler struct {
	http.Handler
	service *handler
}

// Run keeps what pages show of the past, until ctx ends.
func (h *Handler) Run(ctx context.Context) error { return h.service.watcher.Run(ctx) }

// NewHandler serves the management API of an agent. examine may be nil; then
// Doctor is not implemented.
func NewHandler(service agent.Service, examine Examiner) *Handler {
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxRequest),
		connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}),
		connect.WithInterceptors(viewers{}, givesMemoryBack{}, errorCodes{}),
	}
	h := &handler{agent: service, examine: examine, watcher: watch.New(service)}
	mux := http.NewServeMux()
	mux.Handle(culvertv1connect.NewCulvertHandler(h, options...))
	mux.Handle(culvertv1connect.NewPodsHandler(podHandler{service}, options...))
	return &Handler{mux, h}
}

// strictJSON is protobuf's JSON that takes no unknown fields: what is
// misspelled would change something else than was meant.
type strictJSON struct{ name string }

func (c strictJSON) Name() string { return c.name }

func (strictJSON) Marshal(m any) ([]byte, error) { return protoNames.Marshal(m.(proto.Message)) }

func (strictJSON) Unmarshal(data []byte, m any) error {
	return protojson.Unmarshal(data, m.(proto.Message))
}

// givesMemoryBack returns to the system what a large request took. The Go runtime would keep it
// for minutes, and the next packet's buffers may need it.
type givesMemoryBack struct{}

// large is a request, in octets, after which that is worth a garbage collection.
const large = 4 << 20

func (givesMemoryBack) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if m, ok := r.Any().(proto.Message); ok && proto.Size(m) >= large {
			defer time.AfterFunc(time.Second, debug.FreeOSMemory) // the answer is written first
		}
		return next(ctx, r)
	}
}

func (givesMemoryBack) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (givesMemoryBack) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// errorCodes gives every method's errors their codes.
type errorCodes struct{}

func (errorCodes) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		response, err := next(ctx, r)
		return response, toConnect(err)
	}
}

func (errorCodes) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (errorCodes) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, c connect.StreamingHandlerConn) error {
		return toConnect(next(ctx, c))
	}
}

func (h *handler) GetConfig(context.Context, *pb.GetConfigRequest) (*pb.GetConfigResponse, error) {
	running := h.agent.Running()
	if running == nil {
		return nil, pods.ErrNotReady
	}
	c := &pb.Config{}
	err := message.Encode(running, c)
	return &pb.GetConfigResponse{Config: c}, err
}

// whole decodes and validates a configuration that stands for itself.
func whole(m *pb.Config) (*config.Config, error) {
	if m == nil {
		return nil, config.Errors{{Field: "config", Problem: "is missing", Fix: "send the configuration as config"}}
	}
	c, err := configOf(m)
	if err != nil {
		return nil, err
	}
	c.SetDefaults()
	return c, c.Validate()
}

func (h *handler) Check(_ context.Context, r *pb.CheckRequest) (*pb.CheckResponse, error) {
	c, invalid := whole(r.GetConfig())
	if invalid == nil {
		invalid = c.CheckMachine()
	}
	problems, ok := errors.AsType[config.Errors](invalid)
	if invalid != nil && !ok {
		return nil, invalid
	}
	return encoded(&pb.CheckResponse{}, problems, nil)
}

func (h *handler) Apply(ctx context.Context, r *pb.ApplyRequest) (*pb.ApplyResponse, error) {
	c, err := whole(r.GetConfig())
	if err != nil {
		return nil, err
	}
	changes, err := h.agent.Apply(ctx, c, r.GetDryRun())
	return encoded(&pb.ApplyResponse{}, changes, err)
}

func (h *handler) Add(ctx context.Context, r *pb.AddRequest) (*pb.AddResponse, error) {
	if r.GetConfig() == nil || proto.Size(r.GetConfig()) == 0 {
		return nil, config.Errors{{Field: "config", Problem: "holds no resource", Fix: "send what is to be added as config"}}
	}
	fragment, err := configOf(r.GetConfig())
	if err != nil {
		return nil, err
	}
	changes, err := h.agent.Add(ctx, fragment)
	return encoded(&pb.AddResponse{}, changes, err)
}

func (h *handler) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	if len(r.GetRefs()) == 0 {
		return nil, config.Errors{{Field: "refs", Problem: "names no resource", Fix: "send kind and key of what is to be deleted"}}
	}
	refs, err := message.DecodeList[desired.Ref](r)
	if err != nil {
		return nil, err
	}
	changes, err := h.agent.Delete(ctx, refs)
	return encoded(&pb.DeleteResponse{}, changes, err)
}

func (h *handler) Trace(ctx context.Context, r *pb.TraceRequest, stream *connect.ServerStream[pb.TraceResponse]) error {
	filter, err := message.Decode[agent.TraceFilter](r)
	if err != nil {
		return err
	}
	// The headers say that the trace was accepted: what is known
	// to be in its way comes before them.
	if _, err := h.agent.Outcomes(); err != nil {
		return err
	}
	if err := stream.Send(nil); err != nil {
		return err
	}
	return h.agent.Trace(ctx, filter, func(e agent.TraceEvent) error {
		m := &pb.TraceResponse{}
		if err := message.Encode(&e, m); err != nil {
			return err
		}
		return stream.Send(m)
	})
}

func (h *handler) Doctor(ctx context.Context, r *pb.DoctorRequest) (*pb.DoctorResponse, error) {
	if h.examine == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("this daemon does not examine its machine: run `culvert doctor` there"))
	}
	e := Examination{Interfaces: r.GetInterfaces()}
	if running := h.agent.Running(); running != nil {
		e.GTPUOverIPv4, e.Running = running.SendsGTPUOverIPv4(), running
		if len(e.Interfaces) == 0 {
			e.Interfaces = running.InterfaceNames()
		}
		e.Overlay = membershipOf(h.agent, running)
	}
	findings, err := h.examine(ctx, e)
	return encoded(&pb.DoctorResponse{}, findings, err)
}

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
