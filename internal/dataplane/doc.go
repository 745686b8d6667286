// Package dataplane composes the eBPF data path of its concepts. Open loads it, or
// takes over what an earlier daemon pinned; each concept is a field of DataPlane and
// a package of its own:
//
//	abi                    layouts, numbers and programs that C and Go share
//	table, counter, ref    ways to write maps, to read counters, to count users
//	pin, attach, xdp       the bpffs; programs on interfaces; frames for the program
//	settings, port         what every packet depends on; interfaces
//	lpm                    what packets find by the longest prefix
//	adjacency              next hops, routes, outer sources
//	policy, sid, mobile    SR policies, local SIDs, parameters of both
//	target, steering       where packets go that no SID or TEID leads anywhere
//	reach                  what UEs must not reach
//	tunnel                 GTP-U tunnels
//	ethernet, pod          links of Ethernet sessions; pods of this node
//	event, reason          packets and records for the daemon; why packets ended
//	feature                what the kernel has to offer
//
// They build on each other one way, which deps_test.go holds. Only these packages
// import cilium/ebpf. What concerns several of them is here: SetSettings, Sweep,
// Usage.
//
// Whoever opens a data path does so in this order:
//
//  1. Open. What an earlier daemon put goes on working.
//  2. SetSettings, and Put everything that is wanted: what others refer to first.
//  3. Sweep removes what an earlier daemon put and this one has not.
//  4. Close. What is pinned goes on forwarding.
//
// Every change is made so that a packet sees all of the old or all of the new state
// (docs/adr/0002-publishing.md). One lock (DataPlane.mu) guards all concepts: their
// methods that callers use take it, and the methods that concepts use among
// themselves expect it to be held. Sessions settle what packets have left in a
// goroutine of their own; no other concept starts one.
//
// # Where entries are
//
// Index 0 means none in every array.
//
//	local_sid   [1, SIDs]           ranges of locators: base + function
//	            (SIDs, 2*SIDs]      all other SIDs, by sid_by_prefix
//	tunnel      [1, Tunnels)        receive side: the TEID's low 24 bits
//	            [Tunnels, 2*)       UE pools: base + address (IPv6: /64)
//	            [2*, 4*Tunnels)     TEIDs that lead to no free entry, by
//	                                tunnel_by_teid; send sides, by target_by_dst
//	pdr         [1, 2*S]            rules found by TEID: its low 24 bits
//	            (2*S, 4*S]          by UE address: base + address (IPv6: /64)
//	            the rest            rules behind filters, and those found by
//	                                pdr_by_teid, pdr_by_ue, target_by_dst
//	filter      [1, Filters]        runs, each at a multiple of its size, a
//	                                power of two, behind 1
//	forwarding  [64, ...)           shared by the rules of all sessions
//
// S is the limit of sessions. A rule that is alone at its TEID or address, and
// takes every packet there, is the entry found. All others are behind a run of
// filters, which that entry, the head, names: also the rule of a UE with an IPv4
// and an IPv6 address, which is at the head of one of them, while that of the
// other has a run of one filter that takes everything and leads to it.
//
// A SID whose length is that of a locator and its function is found by index,
// unless a longer SID is inside of it. A locator that fits nowhere, a SID put
// before its locator, and a TEID whose entry is taken are found by trie or
// hash instead: that is never an error.
package dataplane
