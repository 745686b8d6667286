// Package trafficrun loads and runs the generator and the receiver of
// bpf/traffic.c. It knows their tables, and nothing of what packets mean; it
// reaches no table of the data path.
package trafficrun
