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
// assets/echarts.min.js is Apache ECharts 6.1.0 as its npm package has it
// (Apache-2.0; echarts.LICENSE and echarts.NOTICE are its own). The page's script
// hands it options, since Go's bindings have no series with intervals and no
// second theme.
package report
