// Package signalling measures how fast a UPF answers N4 once its sessions are set up.
//
// Dial makes SMFs and their sessions. Load.Run sends Session Modification Requests as
// Open5GS's SMF does at handovers, or when UEs become idle and active: with so many
// under way at once (closed loop), or at a rate (open loop). It checks every answer: its
// sequence number, its SEID, its Cause. A request without an answer within T1 is sent
// again once, and counted as unanswered.
//
// Load.RunBeside does so while packets go through the UPF, for the measures n4_per_s and
// n4_p99_us against the share of PDR that is offered. A UPF of this machine gets its
// interface for N4 by AddPort and Configure, and its SMFs by DialNode.
//
// All sockets belong to one thread, which sends and receives with sendmmsg and
// recvmmsg: TestOwnLimit says how much of a machine that takes.
package signalling
