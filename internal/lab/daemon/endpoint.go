package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// StartEndpoint starts the node's GTP-U endpoint: this program again.
func StartEndpoint(in *instance.Instance, n *topology.Node) error {
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
	p, _ := in.Process(n, EndpointProcess)
	ready := instance.WaitFor(5*time.Second, func() bool {
		_, err := gtpulink.Ask(Control(in, n), gtpulink.Request{Op: "stats"})
		return err == nil || !p.Alive()
	})
	if !ready || !p.Alive() {
		return fmt.Errorf("the GTP-U endpoint did not start: %s", in.LogTail(n, EndpointProcess))
	}
	return nil
}

const EndpointProcess = "endpoint"

// Control is the path of the node's endpoint's control socket.
func Control(in *instance.Instance, n *topology.Node) string { return in.File(n, "endpoint.sock") }
