package overlay

// Faults is what is not used of a cluster: "what: why", or only why.
type Faults struct {
	Self    []string // of this node, by the others
	Refused []string // other nodes
	Partly  []string // other nodes, of which a part is not used
	NoPath  []string // SR policies without a valid path
	Paths   []string // other paths, and objects of the Kubernetes API with paths
}
