// Package smf is a small SMF for laboratories and measurements: it drives any
// UPF over N4 (TS 29.244), in the way of Open5GS' SMF or of free5GC's.
//
// A Client is one SMF with one association. Sessions come in groups, made from
// one template (Spec): session i has the i-th UE address, the i-th TEID. The
// messages of a procedure are built once, by go-pfcp, and patched for each
// session, so that what is measured is the UPF. A Scenario is what `culvert smf
// run` does, step by step.
//
// It is an instrument: it shares no code with the N4 server in package pfcp, and
// looks at every UPF, ours too, from outside.
package smf
