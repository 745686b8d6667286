// Package page walks a laboratory's web page in a browser, as a user would: it looks at each
// view, compares figures with those of the command line, and measures what that costs the daemon.
package page
