// Package lpm owns what packets find by the longest prefix that has an address (longest-prefix
// match): the tables of routes and of steering by destination, and the trie that repeats both
// for them (bpf/trie.h). Callers hold the data path's lock.
package lpm
