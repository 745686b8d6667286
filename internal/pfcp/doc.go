// Package pfcp is the N4 server (TS 29.244): it speaks PFCP with SMFs, and tells
// a UPF their sessions as values of package session.
package pfcp
