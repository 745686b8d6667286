package repair

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// judge knows shortest paths by relaxing all links again and again: the graph's are what is judged.
type judge struct {
	t        te.Topology
	lost     map[int]bool
	old, new [][]float64 // distances by node and destination, with the link and without it
}

func newJudge(t te.Topology, link int) *judge {
	j := &judge{t: t, lost: map[int]bool{}}
	for i, l := range t.Links {
		of := t.Links[link]
		j.lost[i] = i == link || l.From == of.To && l.To == of.From && l.Name == of.Name
	}
	j.old, j.new = j.distances(nil), j.distances(j.lost)
	return j
}

func (j *judge) node(name string) int {
	return slices.IndexFunc(j.t.Nodes, func(n te.Node) bool { return n.Name == name })
}

func (j *judge) distances(without map[int]bool) [][]float64 {
	d := make([][]float64, len(j.t.Nodes))
	for a := range d {
		d[a] = slices.Repeat([]float64{math.Inf(1)}, len(d))
		d[a][a] = 0
	}
	for range d {
		for i, l := range j.t.Links {
			a, b := j.node(l.From), j.node(l.To)
			for to := range d {
				if !without[i] {
					d[a][to] = min(d[a][to], float64(l.Metric)+d[b][to])
				}
			}
		}
	}
	return d
}

// leg follows the old paths from a node to another, all equal ones. It returns the length, and
// whether none takes the lost link.
func (j *judge) leg(from, to int) (length float64, spared bool) {
	if math.IsInf(j.old[from][to], 1) {
		return 0, false
	}
	for i, l := range j.t.Links {
		b := j.node(l.To)
		if j.node(l.From) != from || from == to || j.old[from][to] != float64(l.Metric)+j.old[b][to] {
			continue
		}
		if _, spared := j.leg(b, to); j.lost[i] || !spared {
			return 0, false
		}
	}
	return j.old[from][to], true
}

// good says whether a list leads to the endpoint without the lost link while others forward as
// before, along paths that are shortest without it.
func (j *judge) good(key te.Key, list te.List) bool {
	at, end := j.node(key.Headend), j.node(key.Endpoint)
	want, sum := j.new[at][end], 0.0
	for _, w := range list.Waypoints {
		next := j.node(w.Node)
		length, spared := j.leg(at, next)
		if !spared {
			return false
		}
		sum, at = sum+length, next
		if w.Link > 0 {
			if j.lost[w.Link-1] || w.Node == key.Headend {
				return false
			}
			sum, at = sum+float64(j.t.Links[w.Link-1].Metric), j.node(j.t.Links[w.Link-1].To)
		}
	}
	length, spared := j.leg(at, end)
	return spared && sum+length == want
}

// shortest is how many waypoints the shortest good list has of two at most; -1: no such list is good.
func (j *judge) shortest(key te.Key) int {
	var all []te.Waypoint
	for _, n := range j.t.Nodes {
		if n.SID.IsValid() && n.Name != key.Headend {
			all = append(all, te.Waypoint{Node: n.Name})
		}
	}
	for i, l := range j.t.Links {
		if l.SID.IsValid() && l.From != key.Headend {
			all = append(all, te.Waypoint{Node: l.From, Link: i + 1})
		}
	}
	if j.good(key, te.List{}) {
		return 0
	}
	for _, a := range all {
		if j.good(key, te.List{Waypoints: []te.Waypoint{a}}) {
			return 1
		}
	}
	for _, a := range all {
		for _, b := range all {
			if j.good(key, te.List{Waypoints: []te.Waypoint{a, b}}) {
				return 2
			}
		}
	}
	return -1
}

// Each repair list avoids the lost link while other routers do not know of the loss, and is along the
// paths that they will have; none is shorter. Where Of finds none, no list of two waypoints is good.
func TestRepairAgainstAllLists(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(10) {
		topology, _ := generate.Make(generate.Parameters{Nodes: 7, Links: 18, Seed: seed, LinkSIDs: seed%2 == 0})
		for i := range topology.Links { // few metrics, so that there are equal paths
			topology.Links[i].Metric = 1 + uint32(i/2*7+int(seed))%4
		}
		g := graph.New(topology, graph.Without{})
		judges := map[int]*judge{}
		for _, from := range topology.Nodes {
			for _, to := range topology.Nodes {
				key := te.Key{Headend: from.Name, Endpoint: to.Name}
				r, needed := Of(g, key, nil)
				if !needed {
					continue
				}
				if judges[r.Link] == nil {
					judges[r.Link] = newJudge(topology, r.Link)
				}
				j, want := judges[r.Link], judges[r.Link].shortest(key)
				switch n := len(r.List.Waypoints); {
				case topology.Links[r.Link].From != from.Name:
					t.Errorf("seed %d, %v: link %v is not the headend's", seed, key, topology.Links[r.Link])
				case r.Why != "" && want >= 0:
					t.Errorf("seed %d, %v without %s: %s, but %d waypoints do", seed, key, topology.Links[r.Link].Direction(), r.Why, want)
				case r.Why == "" && (!j.good(key, r.List) || want >= 0 && n != want || want < 0 && n < 3):
					t.Errorf("seed %d, %v without %s: %+v, want %d waypoints", seed, key, topology.Links[r.Link].Direction(), r.List, want)
				case r.Why != "":
					counts["none"]++
				default:
					counts[fmt.Sprint(n)]++
				}
				for _, w := range r.List.Waypoints {
					if w.Link > 0 {
						counts["End.X"]++
					}
				}
			}
		}
	}
	t.Logf("%v", counts)
	for _, what := range []string{"none", "1", "2", "End.X"} {
		if counts[what] < 3 {
			t.Errorf("%d of %s: %v", counts[what], what, counts)
		}
	}
}

// network has links "from to metric" in both directions, with SIDs.
func network(links ...string) (t te.Topology) {
	for i, text := range links {
		l := te.Link{Capacity: 1e9}
		if _, err := fmt.Sscan(text, &l.From, &l.To, &l.Metric); err != nil {
			panic(err)
		}
		l.SID = netip.AddrFrom16([16]byte{0xfc, 1, byte(i), 1})
		back := l
		back.From, back.To, back.SID = l.To, l.From, netip.AddrFrom16([16]byte{0xfc, 1, byte(i), 2})
		t.Links = append(t.Links, l, back)
		for _, name := range []string{l.From, l.To} {
			if !slices.ContainsFunc(t.Nodes, func(n te.Node) bool { return n.Name == name }) {
				t.Nodes = append(t.Nodes, te.Node{Name: name, SID: netip.AddrFrom16([16]byte{0xfc, 2, name[0]})})
			}
		}
	}
	return t
}

func TestRepair(t *testing.T) {
	ring := network("a b 1", "b c 1", "c d 1", "d a 1")
	steep := network("a b 1", "b c 1", "c d 10", "d a 1")
	by := func(names ...string) (l te.List) {
		for _, n := range names {
			l.Waypoints = append(l.Waypoints, te.Waypoint{Node: n})
		}
		return l
	}
	const nowhere = "on the paths without it there is no SID that a reaches before other routers know of the loss"
	short := slices.Clone(steep.Nodes)
	for i := range short {
		short[i].MaxSegments = 1
	}
	for name, tt := range map[string]struct {
		t      te.Topology
		to     string
		lists  []te.List
		needed bool
		want   string // of the waypoints, or the reason
	}{
		"equal paths lead back there":     {ring, "b", nil, true, "d-c"},
		"equal links":                     {ring, "c", nil, false, ""},
		"the neighbour's way avoids it":   {network("a b 1", "b c 1", "c a 1"), "b", nil, true, "c"},
		"End.X over the link behind":      {steep, "c", nil, true, "d-c"},
		"a list of two links":             {steep, "c", []te.List{by("b"), by("d")}, false, ""},
		"two lists by one link":           {steep, "c", []te.List{by("b"), {}}, true, "d-c"},
		"a waypoint that is not there":    {steep, "c", []te.List{by("z")}, false, ""},
		"one link only":                   {network("a b 1", "b c 1"), "c", nil, true, "no other link of a leads to c"},
		"the headend pushes one segment":  {te.Topology{Nodes: short, Links: steep.Links}, "c", nil, true, nowhere},
		"its own long link is the way":    {network("a b 1", "a b2 1", "b b2 1"), "b", nil, true, "b2"},
		"no SID before the others know":   {network("a b 1", "a c 9", "b c 1"), "b", nil, true, nowhere},
		"the headend itself, and nowhere": {ring, "a", nil, false, ""},
	} {
		r, needed := Of(graph.New(tt.t, graph.Without{}), te.Key{Headend: "a", Endpoint: tt.to}, tt.lists)
		var words []string
		for _, w := range r.List.Waypoints {
			if words = append(words, w.Node); w.Link > 0 {
				words[len(words)-1] = tt.t.Links[w.Link-1].Direction()
			}
		}
		if got := strings.Join(words, ",") + r.Why; needed != tt.needed || needed && got != tt.want {
			t.Errorf("%s: needed %v, %q, want %v, %q", name, needed, got, tt.needed, tt.want)
		}
	}
}
