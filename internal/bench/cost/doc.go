// Package cost measures the CPU time of a packet: a Row is a function with a number
// of its entries in use, and a Bench is a node that is set up for the rows of a Plan.
//
//  1. SetUp starts the node, fills its tables and sets up sessions by PFCP.
//     SetUpKernel adds a second node, on which Linux alone forwards.
//  2. Bench.Round takes a sample of a row, beside L2 forwarding of the same frame.
//     Bench.Together does so on several CPUs at once.
//  3. Close removes everything.
//
// A Report prints rows as `culvert bench functions` and `upf` always have.
package cost
