// Package nat models NAT44 of UEs, as plain values: which UE has which public address and
// ports. The data path translates by the same arithmetic (bpf/nat.h).
package nat
