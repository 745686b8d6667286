// Package behaviordoc writes docs/reference/behaviors.md from the behaviour table of
// package srv6, so that the document and the code cannot disagree.
package behaviordoc
