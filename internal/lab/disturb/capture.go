package disturb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// captureOf is what the process that captures on a device is called.
func captureOf(device string) string { return "capture-" + device }

// beginCapture captures what passes a device, by somebody else's program.
func beginCapture(ctx context.Context, a action) error {
	name := captureOf(a.event.Device)
	cmd := exec.Command("dumpcap", "-P", "-i", a.event.Device, "-w", a.File(a.node, name+".pcap"))
	if err := a.StartCommand(a.node, name, cmd); errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: install the package tshark", err)
	} else if err != nil {
		return err
	}
	return a.AwaitProcess(ctx, a.node, name, instance.ReadyTime, func() error {
		if log, err := os.ReadFile(a.File(a.node, name+".log")); err != nil || !strings.Contains(string(log), "File:") {
			return errors.Join(errors.New("it does not capture yet"), err)
		}
		return nil
	})
}

// EndCapture ends the capture of a node's device, and returns its file.
func EndCapture(in *instance.Instance, n *topology.Node, device string) (file string, err error) {
	p, ok := in.Process(n, captureOf(device))
	if !ok {
		return "", fmt.Errorf("nobody captures on %s of %s", device, n.Name)
	}
	return in.File(n, p.Name+".pcap"), p.Stop(unix.SIGINT, instance.ReadyTime)
}
