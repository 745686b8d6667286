// Package functions is the experiment `culvert bench functions` (paper 001): the CPU
// time of every function, and rate, loss and latency of those that the paper has.
package functions
