// Package abi is what the eBPF programs and the daemon share: the layouts of
// tables and records, the numbers in them, and the compiled programs.
//
// bpf2go generates all of it but a few accessors from bpf/datapath.c (see
// generate.go; `make generate`). Names follow C: struct local_sid is LocalSid,
// the map local_sid is named by MapLocalSid, enum sid_flags' SID_TENANT is
// SidFlagsSID_TENANT. Integers are in host byte order unless the C type is a
// __be type; IPv4 addresses in 16 octets are IPv4-mapped.
//
// The package holds no state. It writes no table: package table does.
package abi
