// Package bench is `culvert bench`: experiments that measure the data path from
// outside. It starts the built binary in network namespaces of its own, sends it
// packets, and compares the cost with L2 forwarding and the Linux kernel.
//
// This package only wires commands and kinds together. Packages below it have a role
// or an experiment; each imports only packages before it:
//
//	stats search napi   samples, the search for a rate, threads that receive packets
//	result              what a run found: the content of run.json
//	report              page, pictures and tables of runs
//	experiment          the frame of every experiment: file, plan, journal, folder
//	traffic             packets at a rate, each of them checked
//	proc node        CPUs and CPU time; a node in namespaces, and its daemon
//	rig                 a node with programs that make frames and sink them
//	catalog             the functions that are measured: frames, configuration
//	cost                the CPU time of a packet, row by row
//	functions scale     experiments that measure rows
//	device n9 overlay   experiments that send traffic
//	ambr                TCP through the AMBR of a session
//	sourcesink          the CPU of both ends of one tunnel
//	disrupt             events under load, on the devices of device
//
// A new experiment is a package with a Kind, a line in kinds.go, and a file in
// experiments/.
package bench
