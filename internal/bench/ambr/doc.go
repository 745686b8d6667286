// Package ambr measures how much of a session's AMBR TCP gets, and whether the meter lets
// more go than that.
//
// The laboratory ambr-bench has a UE, a UPF and a data network, and the gNB's endpoint
// delays packets. iperf3 sends. What the meter lets go is counted by the interface behind
// it, in T-PDUs' octets, every 50 ms:
//
//	uplink    UE - delay - UPF - [n6] data network
//	downlink  data network - UPF - [n3] gNB - delay - UE
package ambr
