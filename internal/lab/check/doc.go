// Package check makes the checks of a laboratory that is up, with real traffic.
//
// A Checker makes one check after another: it does the events before, observes what
// nodes count, runs the check's kind (see kinds), compares the counters, and says
// what was dropped where a check fails.
package check
