package te

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
)

// parameters are those of the graphs, by name.
var parameters = []struct {
	name string
	of   generate.Parameters
}{
	{"n8", generate.Parameters{Nodes: 8, Links: 44, Seed: 1}},
	{"n12", generate.Parameters{Nodes: 12, Links: 60, Seed: 4}},
	{"n16", generate.Parameters{Nodes: 16, Links: 70, Seed: 5}},
	{"n20", generate.Parameters{Nodes: 20, Links: 120, Seed: 2}},
	{"n30", generate.Parameters{Nodes: 30, Links: 180, Seed: 3}},
	{"n50", generate.Parameters{Nodes: 50, Links: 300, Seed: 4}},
	{"n100", generate.Parameters{Nodes: 100, Links: 600, Seed: 5, Pairs: 3000}},
}

// best is the smallest largest utilisation that lists of one waypoint can have.
type best struct {
	Optimum float64 `json:"optimum"`
	By      string  `json:"by"` // the solver
}

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

// graph is a topology with demands, and what is the best.
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

// load makes a graph.
func load(name string) (network, error) {
	i := slices.IndexFunc(parameters, func(p struct {
		name string
		of   generate.Parameters
	}) bool {
		return p.name == name
	})
	if i < 0 {
		return network{}, fmt.Errorf("no graph is called %q", name)
	}
	n := network{name: name, best: optima[name]}
	n.topology, n.demands = generate.Make(parameters[i].of)
	return n, nil
}
