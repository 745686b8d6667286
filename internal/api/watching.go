package api

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
)

func (h *handler) Watch(ctx context.Context, r *pb.WatchRequest, stream *connect.ServerStream[pb.WatchResponse]) error {
	return h.watcher.Watch(ctx, r, stream.Send)
}

func (h *handler) ExplainPackets(_ context.Context, r *pb.ExplainPacketsRequest) (*pb.ExplainPacketsResponse, error) {
	return h.watcher.Explain(r)
}

func (h *handler) Capture(ctx context.Context, r *pb.CaptureRequest, stream *connect.ServerStream[pb.CaptureResponse]) error {
	if err := stream.Send(nil); err != nil { // the headers say that it has begun
		return err
	}
	return h.watcher.Capture(ctx, r, stream.Send)
}
