// Package dataplane owns the eBPF data path: it loads and pins it, attaches it
// to interfaces, and writes and reads its tables in terms of the models.
//
// It is the only importer of cilium/ebpf. Open loads the object that
// `go generate` made of bpf/, or takes over what is pinned; the Put and Delete
// methods change tables so that packets never see a half of a change
// (docs/adr/0002-publishing.md); Sweep ends a restart.
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
//	pdr         [1, S]              rules found by TEID: its low 24 bits
//	            (S, 3*S]            by UE address: base + address (IPv6: /64)
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
