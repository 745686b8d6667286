// Package pfcp is the N4 server (TS 29.244). It speaks PFCP with SMFs and gives a
// UPF their sessions as values of package session.
//
// What owns what: a worker (worker.go) owns a share of the sessions, whose rules
// the UPF keeps. The node (node.go) owns the associations, with our heartbeats
// and PFDs. Package request owns the tables that say how a request becomes rules;
// package wire knows octets only. requests (outgoing.go) owns what we ask.
//
// A Session Establishment Request takes this path:
//
//  1. conn.read takes a batch of datagrams from the socket.
//  2. dispatcher.dispatch refuses what its sender sends in excess (limits.go), and
//     gives the rest to the workers of their sessions.
//  3. worker.receive repeats an answer that it has given, or handles the request.
//  4. worker.establish has request.Builder read it, allocates TEIDs and UE
//     addresses (allocate), and calls UPF.Establish.
//  5. worker.answer writes the response; outbox.flush sends it.
//
// A request is done completely or not at all: the UPF gets a whole new session
// in place of the old one.
//
// To run a server:
//
//  1. Implement UPF.
//  2. Call Open, which opens the sockets, and Listen: it answers heartbeats while the
//     UPF reads its sessions.
//  3. Call Restore: it takes over what survived a restart. New is Open and Restore.
//  4. Call Run, which ends with its context. Use the Server as the Reporter.
//
// Goroutines: one reader for each socket, which also answers heartbeats, the
// workers, the node. They share limits, values that are replaced as a whole
// (peers, smfs), the mutex of requests, worker.goneMu, and those of
// association.unnamed. Everything else belongs to one goroutine, which runs other
// goroutines' functions from its queue (worker.post, node.post).
//
// The server neither announces nor accepts the following, and refuses it with
// Cause 76 (service not supported) or the cause in parentheses: Ethernet and
// unstructured sessions unless the UPF has them, traffic endpoints, multi-access
// rules, redirection, header enrichment, predefined rules (80), forwarding
// policies (70), the 5G VN, PFDs of URLs and domain names, events and dropped
// packets as usage, session sets. Without them an SMF would believe in forwarding,
// limits or charging that there is not. It ignores what only advises: unknown IEs,
// the Paging Policy Indicator, and octets behind those of an IE that it knows (TS
// 29.244 section 8.1.1). An empty IE in an update removes what was set (section
// 5.6.3), also an Outer Header Creation; in a Create it is refused with Cause 68.
package pfcp
