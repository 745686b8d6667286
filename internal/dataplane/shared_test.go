package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/golden"
)

// way is what a flow takes: the first segment of its list, and the MAC address of its next hop.
type way struct {
	first netip.Addr
	mac   [6]byte
}

const sharedFlows = 2000

// waysOf sends a packet of each of many flows, by XDP or as a pod does, and says which way it takes.
func (r *rig) waysOf(t *testing.T, row *golden.Row, pods bool) (out [sharedFlows]way) {
	t.Helper()
	frame, ifindex := row.Input()
	frame = bytes.Clone(frame)
	for flow := range out {
		binary.BigEndian.PutUint16(frame[34:], uint16(10000+flow)) // the source port
		var sent []byte
		if pods {
			_, sent = r.runHook(t, abi.ProgCulvertPod, addressed(t, frame, ifindex), ifindex)
		} else {
			var err error
			_, sent, err = r.run(frame, ifindex)
			must(t, err)
		}
		out[flow] = way{netip.AddrFrom16([16]byte(sent[38:54])), [6]byte(sent)}
	}
	return out
}

// evenly fails unless flows take four ways about evenly.
func evenly(t *testing.T, what string, ways [sharedFlows]way) {
	t.Helper()
	counts := countWays(ways)
	for w, n := range counts {
		if n < sharedFlows/4*4/5 || n > sharedFlows/4*6/5 {
			t.Errorf("%s: %d of %d flows take %v", what, n, sharedFlows, w)
		}
	}
	if len(counts) != 4 {
		t.Errorf("%s: flows take %d ways of 4: %v", what, len(counts), counts)
	}
}

func countWays(ways [sharedFlows]way) map[way]int {
	out := map[way]int{}
	for _, w := range ways {
		out[w]++
	}
	return out
}

// Two lists of which each has two next hops: flows take all four ways about evenly, and each
// stays on its way; if a next hop fails, its flows alone move, within their list; when it
// returns, no flow moves that the other next hop keeps.
func TestFlowsShareNextHops(t *testing.T) {
	file := loadGolden(t, "shared_next_hops")[0]
	inNamespace(t, file.Network.Ports, func() {
		r := newRig(t)
		must(t, r.program(file.Network))
		for _, p := range file.Network.Ports {
			must(t, r.d.Ports.Set(p.Ifindex, port.Port{Roles: port.Edge}))
		}
		six, seven := AdjacencyKey{NextHop: addr("fd00::6"), Interface: "n6"}, AdjacencyKey{NextHop: addr("fd00::7"), Interface: "n3"}
		share := func(weightOfSeven int) {
			t.Helper()
			for _, first := range []string{"2001:db8:e:1::", "2001:db8:e:2::"} {
				must(t, r.d.Adjacencies.SetShared(AdjacencyKey{NextHop: addr(first)}, []adjacency.Member{{Key: six, Weight: 1}, {Key: seven, Weight: weightOfSeven}}))
			}
		}
		row := &file.Rows[slices.IndexFunc(file.Rows, func(r golden.Row) bool { return r.Name == "two lists, flow 0" })]
		for _, pods := range []bool{false, true} {
			share(1)
			before := r.waysOf(t, row, pods)
			if again := r.waysOf(t, row, pods); again != before {
				t.Errorf("pods %v: flows do not stay on their ways", pods)
			}
			evenly(t, fmt.Sprintf("pods %v", pods), before)
			share(0)
			for flow, w := range r.waysOf(t, row, pods) {
				if w.first != before[flow].first || w.mac != [6]byte{2, 0, 0, 0, 6, 2} {
					t.Fatalf("pods %v: one next hop is left, and flow %d takes %v", pods, flow, w)
				}
			}
			share(1)
			back := r.waysOf(t, row, pods)
			moved := 0
			for flow := range back {
				if back[flow] != before[flow] {
					moved++
				}
			}
			if n := len(countWays(back)); n != 4 || moved > sharedFlows*3/4 {
				t.Errorf("pods %v: the next hop is back, flows take %d ways, and %d take another than before", pods, n, moved)
			}
		}
		// The hash that chooses for flows of a list that is down does not choose the next hop.
		three := file.Network.Config.Policies[2]
		three.SegmentLists = append(three.SegmentLists, srpolicy.SegmentList{Segments: addrs("2001:db8:e:3::", "2001:db8:e:a::")})
		three.Down = []string{"", "", "no probe returns"}
		must(t, r.d.Policies.Put(three))
		share(1)
		evenly(t, "the third of three lists is down", r.waysOf(t, row, false))
	})
}
