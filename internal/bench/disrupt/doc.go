// Package disrupt is the experiment `culvert bench disrupt`: it holds a load, does
// something to the daemon or to what it knows, and measures for how long packets were
// blocked.
//
// One goroutine does the event while the generator sends (during); everything else runs
// in the caller's.
package disrupt
