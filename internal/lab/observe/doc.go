// Package observe reads what the nodes of a laboratory count and show, from
// outside: culvert's counters by its command line and its metrics, the kernel's by
// iproute2 and nft. Nodes looks at all of them, Compare holds the difference
// between two looks against what a check expects.
package observe
