package dataplane

import (
	"testing"

	"github.com/culvert-net/culvert/srv6"
)

// TestPodsOfTwoNodes sends TCP between pods.
func TestPodsOfTwoNodes(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	a.serve(t, Options{Limits: smallLimits})
	b.serve(t, Options{Limits: smallLimits})
	var podA, podB *fabricPod
	a.Do(t, func() { podA = a.newPod(t) })
	b.Do(t, func() { podB = b.newPod(t) })
	a.reach(t, b, srv6.HEncapsRed)
	b.reach(t, a, srv6.HEncapsRed)
	t.Log(transfer(t, podA.NS, podB.NS, podB.ipv4, 10<<20))
	t.Log(transfer(t, podA.NS, podB.NS, podB.ipv6, 10<<20))
	counts, _ := a.d.Outcomes()
	for i, c := range counts {
		if c.Packets != 0 {
			t.Log(Reason(i), c)
		}
	}
}
