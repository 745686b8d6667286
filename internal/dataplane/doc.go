// Package dataplane owns the eBPF data path: it loads and pins it, attaches it
// to interfaces, and writes and reads its tables in terms of the models.
package dataplane
