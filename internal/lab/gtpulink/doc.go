// Package gtpulink is a GTP-U endpoint for hosts without one in their kernel:
// TUN and TAP devices on one side, GTP-U over UDP port 2152 on the other
// (TS 29.281, TS 38.415). In the labs it stands for the gNB and for the UPF;
// what the devices carry is the Linux stack's own traffic.
//
// It reads and writes GTP-U by itself, from the specifications, and shares no
// code with what the labs check.
package gtpulink
