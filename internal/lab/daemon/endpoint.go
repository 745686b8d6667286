package daemon

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// StartEndpoint starts the node's GTP-U endpoint: this program again.
func StartEndpoint(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if len(n.GTPU) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(n.GTPU, "", "  ")
	if err != nil {
		return err
	}
	file := in.File(n, "gtpu.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	answers := func() error {
		_, err := AskEndpoint(in, n, gtpulink.Request{Op: "Stats"})
		return err
	}
	return in.StartAwait(ctx, n, EndpointProcess, 5*time.Second, answers, self, "lab", "endpoint", "--links", file, "--control", control(in, n))
}

// EndpointProcess is what a node's GTP-U endpoint is called in the state.
const EndpointProcess = "endpoint"

// control is the path of the node's endpoint's control socket.
func control(in *instance.Instance, n *topology.Node) string { return in.File(n, "endpoint.sock") }

// AskEndpoint sends a request to the node's GTP-U endpoint.
func AskEndpoint(in *instance.Instance, n *topology.Node, request gtpulink.Request) (gtpulink.Response, error) {
	return gtpulink.Ask(control(in, n), request)
}
