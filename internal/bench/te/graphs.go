package te

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
)

// parameters are those of the graphs, by name. Solvers of linear programs cannot do the ones with 500 nodes: a
// demand has 500 columns.
var parameters = []struct {
	name     string
	of       generate.Parameters
	unsolved bool
}{
	{"n8", generate.Parameters{Nodes: 8, Links: 44, Seed: 1}, false},
	{"n12", generate.Parameters{Nodes: 12, Links: 60, Seed: 4}, false},
	{"n16", generate.Parameters{Nodes: 16, Links: 70, Seed: 5}, false},
	{"n20", generate.Parameters{Nodes: 20, Links: 120, Seed: 2}, false},
	{"n30", generate.Parameters{Nodes: 30, Links: 180, Seed: 3}, false},
	{"n50", generate.Parameters{Nodes: 50, Links: 300, Seed: 4}, false},
	{"n100", generate.Parameters{Nodes: 100, Links: 600, Seed: 5, Pairs: 3000}, false},
	{"n500", generate.Parameters{Nodes: 500, Links: 3000, Seed: 6, Pairs: 3000}, true},
	{"n500-all", generate.Parameters{Nodes: 500, Links: 3000, Seed: 6}, true},
}

// best is the smallest largest utilisation that lists of one waypoint can have, or else what that is not
// below.
type best struct {
	Optimum float64 `json:"optimum,omitempty"`
	Bound   float64 `json:"bound,omitempty"`
	By      string  `json:"by"` // the solver, or who has proven the bound
}

// value is what utilisations are compared with.
func (b best) value() float64 { return cmp.Or(b.Optimum, b.Bound) }

// byPrices is who has proven a bound where solvers fail.
const byPrices = "culvert te, by the prices of links"

// optimaCommand makes optima.json, with highspy of PyPI.
const optimaCommand = "go test ./internal/bench/te -run Optima -solver tools/te/optimum.py -update"

//go:embed optima.json
var optimaText []byte

// optima are the best ones, by graph.
var optima = func() (all map[string]best) {
	if err := json.Unmarshal(optimaText, &all); err != nil {
		panic(err) // it is built in
	}
	return all
}()

// network is a topology with demands, and what is the best.
type network struct {
	name     string
	topology te.Topology
	demands  []te.Demand
	best     best
}

// Graphs are the names of the graphs, the smallest first.
func Graphs() (names []string) {
	for _, p := range parameters {
		names = append(names, p.name)
	}
	return names
}

// made are the graphs by name, each made once: the largest take seconds.
var made = func() map[string]func() network {
	all := map[string]func() network{}
	for _, p := range parameters {
		all[p.name] = sync.OnceValue(func() network {
			n := network{name: p.name, best: optima[p.name]}
			n.topology, n.demands = generate.Make(p.of)
			return n
		})
	}
	return all
}()

// load makes a graph, or finds it. Nobody changes it.
func load(name string) (network, error) {
	if made[name] == nil {
		return network{}, fmt.Errorf("no graph is called %q", name)
	}
	return made[name](), nil
}
