// Package report draws what an experiment found: one HTML page that opens
// offline, PNG and SVG of each figure, tables in Markdown and CSV. It knows no
// experiment: which figures there are, and of what, stands in the run
// (result.Figure), so that any run can be drawn again.
//
//	run.json -> chart (what a figure shows) -> page, picture, table
//
// Of several runs of one experiment it draws the figures over each other, and
// says which differences are real.
//
// gonum/plot draws every picture. The page has the same SVG as the files, in the
// colours of its theme; values show their words under the pointer.
package report
