// Package topology reads what a laboratory is: its nodes and links, what is done
// to it, and what is checked. It is values only: nothing here touches the machine.
//
// A topology is a file of internal/lab/topologies. Load and List read and validate
// them, Plan lists the checks in the variants (transports of N9, or modes of the
// control plane) and address families in which they are made, and WriteGraph draws
// a topology.
package topology
