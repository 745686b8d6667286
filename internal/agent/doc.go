// Package agent keeps the data path in the desired state: what the configuration
// file and the management API ask for, what BGP peers and the Kubernetes API say,
// and what the kernel's routes and neighbours are. It wires its sub-packages and
// runs the goroutines:
//
//	desired   what the file and the API ask for
//	observed  what BGP peers and the Kubernetes API say
//	plan      tables of both, and the steps from one state of them to the next
//	pods      the pods on this node
//	apply     writes to the data path and to the kernel
//	store     the state file
//	punt      the packets that the data path hands up
//	pathmtu   what routers say of the paths of tunnels
//	metrics   what Prometheus reads
//
// Its user makes an Agent (New), calls Run in a goroutine, waits for Ready, and then
// calls the methods of Service from any goroutine.
//
// core.observing keeps updates of others in their order, and is locked before core.mu.
// core.mu guards everything that a change can touch; a method that reads holds it for
// reading. Pods have locks of their own. Run starts these goroutines, which all end
// with its context: the watcher of the kernel, follow (its snapshots, and what is
// tried again), the slow path, the N4 server and the UPF, listen (what others say),
// runSources (the control planes) and Store.Keep.
package agent
