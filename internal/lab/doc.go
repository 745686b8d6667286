// Package lab is `culvert-lab lab`: small networks of network namespaces on one
// machine, with the culvert binary, the kernel's own SRv6 routers, FRR and SMFs
// in them, and checks with real traffic.
//
// A topology (topologies/*.yaml) says which nodes and links there are and what is
// checked. `up` builds it, `down` removes it, `run` does both around the checks.
// The state file names what is about to be made, and every namespace carries a
// mark: `down` finds all of it after a crash, and never touches anything else.
//
// The daemon runs as a process of its own and is observed through its command
// line: the laboratory shares no code with what it measures. iproute2 builds the
// network, and topologies write routes in its grammar.
//
// The packages below it, each of which imports only those above it in this list:
//
//	gtpulink, kubelet  a GTP-U endpoint; a node of a cluster on a part of a machine
//	topology           what a laboratory is: values, read from files and validated
//	namespace, report  named network namespaces; outcomes, results and their table
//	instance           the state and the processes of a laboratory that is up
//	network            its namespaces, links and routes
//	daemon             culvert, FRR, GTP-U endpoints, SMFs and programs of others
//	machine            a fresh Debian that boots, for packages
//	cluster            Kubernetes: API server, kubelets, pods, Services
//	observe            what nodes count, and how two looks compare
//	disturb            events: kill, upgrade, reconfigure, cut
//	check              the kinds of checks
//
// This package has the commands, and Network for benchmarks that send traffic of
// their own.
package lab
