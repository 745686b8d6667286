package disturb

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// TestOccupy: the kernel ends what keeps a CPU busy, and a CPU that is not there is told.
func TestOccupy(t *testing.T) {
	const d = 50 * time.Millisecond
	start := time.Now()
	if err := occupy(t.Context(), action{event: &topology.Event{Do: "busy", For: topology.Duration(d)}}); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < d {
		t.Errorf("busy for %v", took)
	}
	err := occupy(t.Context(), action{event: &topology.Event{Do: "busy", CPU: 9999, For: topology.Duration(d)}})
	if err == nil || !strings.Contains(err.Error(), "CPU 9999") {
		t.Errorf("a CPU that does not exist: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := occupy(ended, action{event: &topology.Event{Do: "busy", For: topology.Duration(time.Second)}}); err == nil {
		t.Error("it goes on after the lab has ended")
	}
}
