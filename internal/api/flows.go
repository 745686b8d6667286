package api

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/flow"
)

func (h *handler) Flows(ctx context.Context, r *pb.FlowsRequest, stream *connect.ServerStream[pb.FlowsResponse]) error {
	filter, err := message.Decode[flow.Filter](r)
	if err != nil {
		return err
	}
	return h.agent.PodTraffic().Flows(ctx, filter, func(v flow.Flow) error {
		m := &pb.FlowsResponse{}
		if err := message.Encode(&v, m); err != nil {
			return err
		}
		return stream.Send(m)
	})
}

// Flows calls f for each flow that the filter means, and goes on with those that change if the
// filter says so, until ctx ends, which is no error then.
func (c *Client) Flows(ctx context.Context, filter flow.Filter, f func(flow.Flow) error) error {
	request := &pb.FlowsRequest{}
	if err := message.Encode(&filter, request); err != nil {
		return err
	}
	stream, err := c.rpc.Flows(ctx, request)
	if err == nil {
		defer stream.Close()
		if err = receive[flow.Flow](stream, f); err == nil {
			err = stream.Err()
		}
	}
	if filter.Follow && ctx.Err() != nil {
		return nil
	}
	return c.fail(err)
}

// receive calls f for each message of a stream.
func receive[T any, M any, P interface {
	*M
	proto.Message
}](stream *connect.ServerStreamForClient[M], f func(T) error) error {
	for stream.Receive() {
		v, err := message.Decode[T](P(stream.Msg()))
		if err != nil {
			return err
		}
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}
