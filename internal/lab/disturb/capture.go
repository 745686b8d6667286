package disturb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
)

// beginCapture captures what passes a device, by somebody else's program, into a file of the
// node with the device's name. The capture ends with the laboratory.
func beginCapture(ctx context.Context, a action) error {
	name := "capture-" + a.event.Device
	cmd := exec.Command("dumpcap", "-P", "-i", a.event.Device, "-w", a.File(a.node, a.event.Device+".pcap"))
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
