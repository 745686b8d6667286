package optimize

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/program"
)

// GLPK solves the same linear program exactly: its optimum is between the bound and what was
// found, and at most 2 % below the rounded routing.
func TestGLPK(t *testing.T) {
	for _, p := range []generate.Parameters{
		{Nodes: 6, Links: 20, Seed: 1}, {Nodes: 8, Links: 44, Seed: 2}, {Nodes: 10, Links: 30, Seed: 3}, {Nodes: 12, Links: 60, Seed: 4}, {Nodes: 16, Links: 70, Seed: 5},
		{Nodes: 6, Links: 20, Seed: 1, LinkSIDs: true}, {Nodes: 8, Links: 24, Seed: 7, LinkSIDs: true}, {Nodes: 10, Links: 30, Seed: 3, LinkSIDs: true},
	} {
		topology, demands := generate.Make(p)
		g := graph.New(topology, graph.Without{})
		r, err := Solve(t.Context(), g, nil, demands, Options{})
		if err != nil {
			t.Fatal(err)
		}
		optimum := glpk(t, program.Text(g, demands))
		const digits = 1e-4 // of the text between us
		if r.Bound > optimum*(1+digits) || r.Fractional < optimum*(1-digits) || r.Utilisation > 1.02*optimum || r.Fractional > 1.011*r.Bound {
			t.Errorf("%+v: bound %v, found %v, rounded %v; the optimum is %v", p, r.Bound, r.Fractional, r.Utilisation, optimum)
		}
	}
}

// glpk is the optimum of a linear program.
func glpk(t *testing.T, text []byte) float64 {
	t.Helper()
	in, out := filepath.Join(t.TempDir(), "program.lp"), filepath.Join(t.TempDir(), "solution")
	if err := os.WriteFile(in, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), "glpsol", "--lp", in, "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("glpsol (tools/need.sh test installs it): %v\n%s", err, said)
	}
	solution, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(solution)); s.Scan(); {
		// Objective:  obj = 0.1434 (MINimum)
		if words := strings.Fields(s.Text()); len(words) > 3 && words[0] == "Objective:" {
			u, err := strconv.ParseFloat(words[3], 64)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
	}
	t.Fatalf("glpsol found nothing: %s", solution)
	return 0
}
