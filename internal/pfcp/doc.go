// Package pfcp is the N4 server (TS 29.244): it speaks PFCP with SMFs, and tells
// a UPF their sessions as values of package session.
//
// A datagram's way: a reader takes many with one system call (conn.go), a
// dispatcher gives each to the worker of its session, or to the node goroutine
// (server.go). The worker (worker.go) looks whether it has answered it before
// (transactions.go), has a builder read it (wire.go, value.go, rules.go, urr.go,
// request.go), takes TEIDs and UE addresses, tells the UPF (upf.go), and
// answers. All of a request is done or nothing: the UPF gets a whole new
// session in the place of the old one.
//
// The node goroutine (node.go) has the associations, heartbeats and PFDs
// (pfd.go). What we ask ourselves, reports above all (report.go), goes by
// outgoing.go, again until there is an answer. What survives a restart beside
// the sessions is in state.go.
//
// Not there, not announced, and refused with Cause 76 (service not supported):
// Ethernet and unstructured sessions unless the UPF has them, traffic endpoints,
// multi-access rules, redirection, header enrichment, predefined rules (80),
// forwarding policies (70), the 5G VN, PFDs of URLs and domain names, events and
// dropped packets as usage, session sets.
package pfcp
