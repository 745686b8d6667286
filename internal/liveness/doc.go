// Package liveness finds out whether segment lists lead where they should, and how long it
// takes. The headend sends probes of its own through each list: in an SRH of the list's
// segments, which ends with a SID of the headend. Any SRv6 router forwards them, and nobody
// has to answer. A list of which several probes in a row do not return is dead.
//
// A probe tests the list and the way back. If no list of several returns any more, the way
// back is at fault as well as anything, and nothing changes.
//
// Monitor judges one list and has no clock, no lock and no goroutine. Prober sends, receives
// and reports.
package liveness
