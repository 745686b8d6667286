package optimize

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// GLPK solves the same linear program exactly: its optimum is between the bound and what was
// found, and at most 2 % below the rounded routing.
func TestGLPK(t *testing.T) {
	for _, p := range []generate.Parameters{
		{Nodes: 6, Links: 20, Seed: 1}, {Nodes: 8, Links: 44, Seed: 2}, {Nodes: 10, Links: 30, Seed: 3}, {Nodes: 12, Links: 60, Seed: 4}, {Nodes: 16, Links: 70, Seed: 5},
	} {
		topology, demands := generate.Make(p)
		g := graph.New(topology, graph.Without{})
		r, err := Solve(t.Context(), g, nil, demands, Options{})
		if err != nil {
			t.Fatal(err)
		}
		optimum := glpk(t, program(g, demands))
		const digits = 1e-4 // of the text between us
		if r.Bound > optimum*(1+digits) || r.Fractional < optimum*(1-digits) || r.Utilisation > 1.02*optimum || r.Fractional > 1.011*r.Bound {
			t.Errorf("%+v: bound %v, found %v, rounded %v; the optimum is %v", p, r.Bound, r.Fractional, r.Utilisation, optimum)
		}
	}
}

// program is the question as a linear program in CPLEX's format: x_D_K is the part of demand D
// that visits node K, u the largest utilisation.
func program(g *graph.Graph, demands []te.Demand) []byte {
	var b bytes.Buffer
	flows := g.Flows()
	on := make([]strings.Builder, len(g.Topology.Links))
	fmt.Fprintln(&b, "Minimize\n obj: u\nSubject To")
	for i, d := range demands {
		from, _ := g.Node(d.Headend)
		to, _ := g.Node(d.Endpoint)
		fmt.Fprintf(&b, " d%d: 0 u", i)
		for k := range g.Topology.Nodes {
			if k == from {
				continue
			}
			fmt.Fprintf(&b, " + x_%d_%d\n", i, k)
			for _, s := range flows.Append(flows.Append(nil, from, k), k, to) {
				fmt.Fprintf(&on[s.Link], " + %.9f x_%d_%d\n", d.Rate/1e9*float64(s.Part), i, k)
			}
		}
		fmt.Fprintln(&b, " = 1")
	}
	for link := range on {
		if on[link].Len() > 0 {
			fmt.Fprintf(&b, " l%d:%s - %.9f u <= 0\n", link, on[link].String(), g.Topology.Links[link].Capacity/1e9)
		}
	}
	fmt.Fprintln(&b, "End")
	return b.Bytes()
}

// glpk is the optimum of a linear program.
func glpk(t *testing.T, program []byte) float64 {
	t.Helper()
	in, out := filepath.Join(t.TempDir(), "program.lp"), filepath.Join(t.TempDir(), "solution")
	if err := os.WriteFile(in, program, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "glpsol", "--lp", in, "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("glpsol (tools/need.sh test installs it): %v\n%s", err, text)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		// Objective:  obj = 0.1434 (MINimum)
		if words := strings.Fields(s.Text()); len(words) > 3 && words[0] == "Objective:" {
			u, err := strconv.ParseFloat(words[3], 64)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
	}
	t.Fatalf("glpsol found nothing: %s", text)
	return 0
}
