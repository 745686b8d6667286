// Package report holds what checks come to, and prints it: the Outcome that a check
// fills in while it runs, its Result, the Report of a whole run, and the Progress
// that somebody watches meanwhile.
package report
