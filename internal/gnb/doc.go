// Package gnb is a gNB with UEs, to try a UPF by hand. It makes the sessions by
// N4 with the small SMF of package smf, unless somebody else has made them. Each UE
// is a network namespace with a TUN device, whose packets travel in GTP-U to the UPF.
//
// Who uses it:
//
//  1. fills in Options and calls Attach, which makes namespaces, devices and sessions,
//     or, after an error, nothing;
//  2. calls Ping, or Run for a command in a UE's namespace, as often as needed;
//  3. calls Close, which deletes the sessions, the devices and the namespaces.
//
// It touches no namespace and no device that it has not made. Namespaces carry a mark
// with this process, so that the next run removes what a killed one left.
package gnb
