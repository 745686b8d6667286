// Package progrun runs XDP programs for measurements: a pinned one of the data
// path, and the baseline beside it, on frames that a program of its own makes
// anew each time (bpf/bench.c). It reaches no table of the data path.
package progrun
