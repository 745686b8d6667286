package agent

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// The frames that interfaces did not send: of the configuration's, and of others that lost
// some. Where nothing counts them, no figure says 0, and the status says why.
func TestLostFramesOfInterfaces(t *testing.T) {
	d := start(t)
	d.dp.mu.Lock()
	d.dp.lost = map[int]uint64{2: 24, 3: 56}
	d.dp.mu.Unlock()
	s := withRoute(links("eth0", "eth1", "spare", "idle"))
	d.change(t, s, "the links are known", func() bool { return d.core.links == s })
	want := map[string]uint64{"eth0": 0, "eth1": 24, "spare": 56}
	if got := d.Gauges().Lost; !maps.Equal(got, want) {
		t.Errorf("the metric has %v, want %v", got, want)
	}
	interfaces, err := d.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range interfaces {
		if in.Lost != want[in.Name] {
			t.Errorf("%s lost %d frames, want %d", in.Name, in.Lost, want[in.Name])
		}
	}
	d.dp.lossError = errors.New("operation not permitted")
	if got := d.Gauges().Lost; len(got) != 0 {
		t.Errorf("the metric has %v, and nothing counts", got)
	}
	status, err := d.Status()
	if err != nil || len(status.Problems) != 1 || !strings.Contains(status.Problems[0], "not counted: operation not permitted") {
		t.Errorf("the status says %q, %v", status.Problems, err)
	}
}
