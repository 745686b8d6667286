// Package native holds no Go code but a test: it compiles the data path (bpf/)
// for user space, where sanitizers watch it, and lets libFuzzer look for what
// breaks it.
//
// include/ stands in for libbpf's headers; helpers.h is the kernel's side (maps
// and helpers, with the packet against a page that nobody may read); tables.h,
// sessions.h and world.h make tables, frame.h frames; skb.h is the kernel's side of the programs for
// pods; lib.h checks the pure functions of bpf/lib;
// fuzz.c runs one frame and checks how its journey ended.
package native
