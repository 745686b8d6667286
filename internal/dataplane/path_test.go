package dataplane

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/testutil/golden"
)

// A path's MTU falls and rises under its users, which find an adjacency that leads on at once,
// and nothing is left of it in the end.
func TestPathMTU(t *testing.T) {
	for _, name := range []string{"session/path_mtu_lowered", "behavior/gateway_path_mtu"} {
		t.Run(name, func(t *testing.T) { lowerAndRaise(t, name) })
	}
}

func lowerAndRaise(t *testing.T, name string) {
	file, err := golden.Load("testdata/" + name + ".yaml")
	must(t, err)
	inNamespace(t, file.Network.Ports, func() {
		r := newRig(t)
		must(t, r.program(withoutPathMTUs(file.Network)))
		before := r.d.Adjacencies.Usage().Used
		fits := func(i int) bool {
			frame, ifindex := file.Rows[i].Input()
			verdict, _, err := r.run(frame, ifindex)
			must(t, err)
			return verdict == xdp.VerdictRedirect
		}
		narrow := func(i int) bool { // by a link that is too small
			return slices.Contains([]string{"IPv6 of 1280 octets into a tunnel of 1300", "IPv6 of 1281 octets into a tunnel of 1300"}, file.Rows[i].Name)
		}
		for round := range 2 {
			for i := range file.Rows {
				if !fits(i) && !narrow(i) {
					t.Fatalf("round %d: %s does not fit before", round, file.Rows[i].Name)
				}
			}
			for _, p := range file.Network.PathMTUs {
				must(t, SetPathMTU(r.d, p.MTU, p.Ends...))
				must(t, SetPathMTU(r.d, p.MTU, p.Ends...)) // which changes nothing
			}
			for i := range file.Rows {
				want := file.Rows[i].Want.Verdict == "forwarded"
				shared := file.Rows[i].Name == "a packet of 1337 octets where flows share next hops"
				if !shared && !narrow(i) && fits(i) != want { // what is shared waits for the agent
					t.Errorf("round %d: %s: fits is %v", round, file.Rows[i].Name, !want)
				}
			}
			must(t, r.setNextHops())
			for i := range file.Rows {
				if want := file.Rows[i].Want.Verdict == "forwarded"; fits(i) != want {
					t.Errorf("round %d: %s: fits is %v once it is resolved", round, file.Rows[i].Name, !want)
				}
			}
			for _, p := range file.Network.PathMTUs {
				must(t, SetPathMTU(r.d, 0, p.Ends...))
			}
			must(t, r.setNextHops())
		}
		if used := r.d.Adjacencies.Usage().Used; used != before {
			t.Errorf("%d adjacencies are left of %d", used, before)
		}
		must(t, r.clear())
	})
}

func withoutPathMTUs(n model.Network) model.Network {
	n.PathMTUs = nil
	return n
}

// Where there is no room for another adjacency, the path stays as it is.
func TestPathMTUWithoutRoom(t *testing.T) {
	file, err := golden.Load("testdata/session/path_mtu_lowered.yaml")
	must(t, err)
	inNamespace(t, file.Network.Ports, func() {
		r := newRig(t)
		must(t, r.program(withoutPathMTUs(file.Network)))
		for i := uint32(1); ; i++ {
			key := AdjacencyKey{NextHop: netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)})}
			r.d.mu.Lock()
			_, err := r.d.Adjacencies.Acquire(key)
			r.d.mu.Unlock()
			if err != nil {
				break
			}
		}
		path := file.Network.PathMTUs[0]
		if err := SetPathMTU(r.d, path.MTU, path.Ends...); !errors.As(err, new(*table.FullError)) {
			t.Errorf("%v, want that the table is full", err)
		}
		frame, ifindex := file.Rows[0].Input()
		if verdict, _, err := r.run(frame, ifindex); err != nil || verdict != xdp.VerdictRedirect {
			t.Errorf("the path is lowered all the same: %v, %v", verdict, err)
		}
	})
}

// A route of the kernel's to where a path ends is what it was when the path has the links' MTU
// again, also if it came, changed or went in between.
func TestPathMTUBesideARoute(t *testing.T) {
	file, err := golden.Load("testdata/behavior/gateway_path_mtu.yaml")
	must(t, err)
	inNamespace(t, file.Network.Ports, func() {
		r := newRig(t)
		must(t, r.program(withoutPathMTUs(file.Network)))
		to := netip.MustParseAddr("10.0.0.9")
		one, other := AdjacencyKey{NextHop: netip.MustParseAddr("10.3.0.2"), Interface: "n3"}, AdjacencyKey{NextHop: netip.MustParseAddr("fd00::6"), Interface: "n6"}
		put := func(via ...AdjacencyKey) { must(t, r.d.Routes.Put(0, hostPrefix(to), via)) }
		remove := func() { must(t, r.d.Routes.Delete(0, hostPrefix(to))) }
		is := func(when string, want AdjacencyKey) {
			t.Helper()
			e, _ := r.d.Routes.Lookup(lpm.At{Table: abi.KernelTable(0), Prefix: hostPrefix(to)})
			if got := r.d.Adjacencies.KeyAt(e.Adjacency[0]); got != want {
				t.Errorf("%s: the route leads to %v, want %v", when, got, want)
			}
		}
		low := AdjacencyKey{NextHop: to, MTU: 1400}
		for _, step := range []struct {
			name       string
			do         func()
			then, last AdjacencyKey // while the path is lower, and after it
		}{
			{"none", func() {}, low, AdjacencyKey{}},
			{"a route comes", func() { put(one) }, low, one},
			{"it stays", func() {}, low, one},
			{"it changes", func() { put(other) }, low, other},
			{"it goes", remove, low, AdjacencyKey{}},
			{"it comes and goes", func() { put(one); remove() }, low, AdjacencyKey{}},
		} {
			must(t, SetPathMTU(r.d, 1400, to))
			step.do()
			is(step.name, step.then)
			must(t, SetPathMTU(r.d, 0, to))
			is(step.name+", after it", step.last)
		}
	})
}
