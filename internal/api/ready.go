package api

import (
	"context"
	"net"
	"net/http"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/api/message"
)

// PodReadiness asks the daemon with this socket whether pods can be added.
func PodReadiness(ctx context.Context, socket string) (agent.PodReadiness, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	m, err := culvertv1connect.NewPodsClient(&http.Client{Transport: transport}, "http://culvert").GetPodReadiness(ctx, &pb.GetPodReadinessRequest{})
	if err != nil {
		return agent.PodReadiness{}, (&Client{target: socket}).fail(err)
	}
	return message.Decode[agent.PodReadiness](m)
}
