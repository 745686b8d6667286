package daemon

import (
	"net/netip"
	"os"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/instance"
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

// fixture is a topology of the laboratory's testdata.
func fixture(name string) string {
	text, err := os.ReadFile("../testdata/" + name + ".yaml")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// inCluster is an instance whose pods have addresses; it is not up.
func inCluster(t *testing.T) *instance.Instance {
	a := netip.MustParseAddr
	return &instance.Instance{Topology: parse(t, clusterOfOne), Name: "l", State: instance.State{Pods: map[string][]netip.Addr{
		"p": {a("10.244.1.2"), a("fd00:10:244:1::2")}, "q": {a("10.244.1.3"), a("fd00:10:244:1::3")}}}}
}

var (
	clusterOfOne = fixture("cluster-of-one")
)
