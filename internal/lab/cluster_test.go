package lab

import (
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/instance"
)

// inCluster is an instance whose pods have addresses; it is not up.
func inCluster(t *testing.T) *instance.Instance {
	a := netip.MustParseAddr
	return &instance.Instance{Topology: parse(t, clusterOfOne), Name: "l", State: instance.State{Pods: map[string][]netip.Addr{
		"p": {a("10.244.1.2"), a("fd00:10:244:1::2")}, "q": {a("10.244.1.3"), a("fd00:10:244:1::3")}}}}
}
