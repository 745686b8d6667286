package message_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/srv6"
)

// fill sets every field of v.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("2001:db8::1")))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("2001:db8:1::/48")))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 7).UTC()))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(`{"a":1}`)))
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
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("sid").Convert(v.Type().Key()), reflect.ValueOf(7).Convert(v.Type().Elem()))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		if v.CanInt() {
			v.SetInt(200)
		} else {
			v.SetUint(200)
		}
	}
}

// roundTrip sends a struct with every field set, and one with none, over the wire.
func roundTrip[T any, M any, P interface {
	*M
	proto.Message
}](t *testing.T) {
	t.Helper()
	var full, empty T
	fill(reflect.ValueOf(&full).Elem())
	for _, want := range []T{full, empty} {
		sent, received := P(new(M)), P(new(M))
		if err := message.Encode(&want, sent); err != nil {
			t.Fatalf("%T: %v", want, err)
		}
		wire, err := proto.Marshal(sent)
		if err == nil {
			err = proto.Unmarshal(wire, received)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := message.Decode[T](received)
		if err != nil {
			t.Fatalf("%T: %v", want, err)
		}
		if reflect.DeepEqual(want, full) && !reflect.DeepEqual(got, want) {
			t.Errorf("%T:\ngot  %+v\nwant %+v", want, got, want)
		}
	}
}

// Every field of what the agent says has its field in a message.
func TestRoundTrips(t *testing.T) {
	roundTrip[agent.Status, pb.StatusResponse](t)
	roundTrip[agent.InterfaceStatus, pb.InterfaceStatus](t)
	roundTrip[agent.LocatorStatus, pb.LocatorStatus](t)
	roundTrip[agent.SIDStatus, pb.SIDStatus](t)
	roundTrip[agent.PolicyStatus, pb.PolicyStatus](t)
	roundTrip[agent.CandidatePathStatus, pb.CandidatePathStatus](t)
	roundTrip[agent.BGPPeerStatus, pb.BGPPeerStatus](t)
	roundTrip[agent.NodeStatus, pb.NodeStatus](t)
	roundTrip[agent.SteeringStatus, pb.SteeringStatus](t)
	roundTrip[agent.ClassStatus, pb.ClassStatus](t)
	roundTrip[agent.TunnelStatus, pb.TunnelStatus](t)
	roundTrip[agent.AdjacencyStatus, pb.AdjacencyStatus](t)
	roundTrip[agent.Outcome, pb.Outcome](t)
	roundTrip[agent.SliceStatus, pb.SliceStatus](t)
	roundTrip[agent.AssociationStatus, pb.AssociationStatus](t)
	roundTrip[agent.AnnouncementStatus, pb.AnnouncementStatus](t)
	roundTrip[agent.SessionStatus, pb.SessionStatus](t)
	roundTrip[agent.SessionFilter, pb.ListSessionsRequest](t)
	roundTrip[pods.Status, pb.PodStatus](t)
	roundTrip[pods.Network, pb.AddPodResponse](t)
	roundTrip[pods.Readiness, pb.GetPodReadinessResponse](t)
	roundTrip[flow.Filter, pb.FlowsRequest](t)
	roundTrip[flow.Flow, pb.FlowsResponse](t)
	roundTrip[agent.TraceFilter, pb.TraceRequest](t)
	roundTrip[agent.TraceEvent, pb.TraceResponse](t)
	roundTrip[desired.Change, pb.Change](t)
	roundTrip[desired.Ref, pb.Ref](t)
	roundTrip[config.Error, pb.Problem](t)
	roundTrip[config.Config, pb.Config](t)
}

// A pointer to zero is a value, which a nil pointer is not.
func TestOptional(t *testing.T) {
	m := &pb.TraceRequest{}
	if err := message.Encode(&agent.TraceFilter{TEID: new(uint32)}, m); err != nil || m.Teid == nil || *m.Teid != 0 {
		t.Errorf("%v, %v", m, err)
	}
	if f, err := message.Decode[agent.TraceFilter](&pb.TraceRequest{}); err != nil || f.TEID != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

// Structs are sent even if they are zero, as counters are; times are not.
func TestZero(t *testing.T) {
	m := &pb.SIDStatus{}
	if err := message.Encode(agent.SIDStatus{}, m); err != nil || m.Counter == nil || m.Resource == nil {
		t.Errorf("%v, %v", m, err)
	}
	s := &pb.StatusResponse{}
	if err := message.Encode(agent.Status{}, s); err != nil || s.Started != nil || s.Overlay != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// Text that cannot be read is an error that names its field.
func TestBadText(t *testing.T) {
	for _, tt := range []struct {
		m    *pb.TraceRequest
		want string
	}{
		{&pb.TraceRequest{Source: "x"}, `source: "x" is not a prefix (fix: a prefix such as 2001:db8::/32)`},
		{&pb.TraceRequest{Sid: "10.0.0.0/33"}, `sid: "10.0.0.0/33" is not a prefix (fix: a prefix such as 2001:db8::/32)`},
	} {
		_, err := message.Decode[agent.TraceFilter](tt.m)
		if _, ok := errors.AsType[config.Errors](err); !ok || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	_, err := message.Decode[agent.SessionFilter](&pb.ListSessionsRequest{Ue: "x"})
	if want := `ue: "x" is not an address (fix: an address such as 10.45.0.1)`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A struct that has more than its message is a mistake, which every use reports.
func TestMissingField(t *testing.T) {
	type more struct{ Color string }
	if err := message.Encode(more{"red"}, &pb.Ref{}); err == nil {
		t.Error("no error")
	}
	if _, err := message.Decode[more](&pb.Ref{}); err == nil {
		t.Error("no error")
	}
}
