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
	if err := in.Start(n, EndpointProcess, self, "lab", "endpoint", "--links", file, "--control", Control(in, n)); err != nil {
		return err
	}
	return in.AwaitProcess(ctx, n, EndpointProcess, 5*time.Second, func() error {
		_, err := gtpulink.Ask(Control(in, n), gtpulink.Request{Op: "stats"})
		return err
	})
}

// EndpointProcess is what a node's GTP-U endpoint is called in the state.
const EndpointProcess = "endpoint"

// Control is the path of the node's endpoint's control socket.
func Control(in *instance.Instance, n *topology.Node) string { return in.File(n, "endpoint.sock") }
