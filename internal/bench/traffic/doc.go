// Package traffic sends packets to a device at a rate, receives what comes out, and
// reports for each packet whether it was lost, duplicated, reordered or changed, and
// how long it took. It knows nothing of what is between its two interfaces.
//
//  1. Open prepares both interfaces and attaches the receivers.
//  2. Pair.Run sends a trial's packets and waits for late ones; Together runs trials
//     of two pairs at once.
//  3. Close detaches everything.
//
// Run sends on a thread of its own, bound to one CPU, and reads samples of frames on
// the caller's goroutine meanwhile.
//
// Each packet ends in a tag of 12 octets that survives encapsulation and
// translation: it is found from the end of the IP packet. The tag's Internet
// checksum is the same in each packet, so that no checksum around it changes.
package traffic
