// Package te measures how good the lists are that the optimiser of traffic engineering finds, and
// how long it takes, beside the ways that routers and per-demand computations take.
//
// Graphs are of internal/te/generate. What is the best is known from a solver of linear programs:
// optima.json holds its results for each graph, and optimaCommand is what made them. The test
// compares the small ones with GLPK's, and holds the optimiser to its goals.
package te
