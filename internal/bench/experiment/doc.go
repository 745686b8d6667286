// Package experiment is the frame that every experiment of `culvert bench` runs
// in: the file that defines it, the order of its points, the journal of its
// samples, and the run's folder. It knows no experiment: kinds are given to it
// (internal/bench/kinds.go), and the built-in ones are files
// (internal/bench/experiments).
//
// A run goes like this:
//
//	Load (YAML, flags) -> Plan -> Open -> Measure, Measure, ... -> Close
//	                                          |
//	                              journal.jsonl, a line each -> run.json -> report
package experiment
