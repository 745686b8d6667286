package disturb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// parse reads a topology.
func parse(t *testing.T, text string) *topology.Topology {
	t.Helper()
	parsed, err := topology.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// unique is an instance name that no other test run has.
func unique(suffix string) string { return fmt.Sprintf("t%d-%s", os.Getpid(), suffix) }

// open opens an instance, which is taken down after the test.
func open(t *testing.T, topology *topology.Topology, name string) *instance.Instance {
	t.Helper()
	in, err := instance.Open(topology, name, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Down(&report.Progress{W: io.Discard}), in.Close()); err != nil {
			t.Error(err)
		}
	})
	return in
}
