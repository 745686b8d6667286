// Package te measures how good the lists are that the optimiser of traffic engineering finds, and
// how long it takes, beside the ways that routers and per-demand computations take.
//
// Graphs are of internal/te/generate. What is the best is known from a solver of linear programs:
// optima.json holds its results, and this is the command that made them, for each graph:
//
//	go test ./internal/bench/te -run Optima -solver tools/te/optimum.py -update
//
// tools/te/optimum.py needs highspy of PyPI. The test compares the small ones with GLPK's.
package te
