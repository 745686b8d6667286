// Package picture draws a network as a page of HTML: its links by how full they are, the paths of
// demands, and both over time.
//
//	Page (what there is to show) -> graph, chart, tables -> one file
//
// The page holds all that it needs and fetches nothing. It reads without its script, which lets
// people choose a demand and a time. Names come from files and from routers, so that every text
// is escaped where it is written (page.add), and a Content-Security-Policy allows the one script
// that is built in.
//
// It uses neither html/template nor a library of charts: culvert is on every node, and either
// makes it larger by a sixth (docs/adr/0013-reports.md).
package picture
