package connectivity

import (
	"context"
	"io"
	"net/netip"

	"github.com/culvert-net/culvert/internal/overlay"
)

// Cluster is the test's access to a cluster.
type Cluster interface {
	// Nodes returns all nodes of the cluster, with the agents on them.
	Nodes(ctx context.Context) ([]Node, error)
	// Start creates the test's pods and their Service. It returns ErrThere if such
	// pods exist already.
	Start(ctx context.Context, d Deployment) error
	// Pods returns the test's pods that exist so far.
	Pods(ctx context.Context) ([]Pod, error)
	Service(ctx context.Context) (Service, error)
	// Exec runs a command in a container, and returns what it wrote.
	Exec(ctx context.Context, in Container, stdin io.Reader, command ...string) ([]byte, error)
	PutPolicy(ctx context.Context, p Policy) error
	// PolicyState returns the state that a policy's node reports: Active, Refused,
	// or "" if it has reported none yet; and the reason.
	PolicyState(ctx context.Context, p Policy) (state, why string, err error)
	DeletePolicy(ctx context.Context, name string) error
	// Clean removes everything that tests left behind, waits until it is gone, and
	// names it.
	Clean(ctx context.Context) ([]string, error)
}

// Node is a node of the cluster.
type Node struct {
	Name      string
	Addresses []netip.Addr // internal ones
	Agent     Container    // none: there is no culvert on it
	Problem   string       // of the agent; "": it is ready
	// Overlay is what the node publishes for the others; nil unless agents
	// communicate through the Kubernetes API.
	Overlay *overlay.Node
}

// Container names a container in which the test can run commands.
type Container struct {
	Namespace, Pod, Name string
}

// Roles of pods.
const (
	Client = "client"
	Server = "server"
	Host   = "host" // in the node's own network
)

// Roles returns all roles.
func Roles() []string { return []string{Client, Server, Host} }

// Pod is one of the test's pods.
type Pod struct {
	Container
	Role, Node string
	Addresses  []netip.Addr
	Ready      bool
	// Problem is why the pod is not ready. Fatal: waiting does not help.
	Problem string
	Fatal   bool
}

// Deployment describes the test's pods.
type Deployment struct {
	Image string // that of the agents unless set
	Nodes []string
	Ports Ports
}

// Ports at which pods and nodes serve.
type Ports struct {
	Pod, Host, Service uint16
}

// Service leads to the pods of role Server.
type Service struct {
	Addresses []netip.Addr
	Port      uint16
	NodePort  uint16
}

// Policy is a candidate path that the test adds for a node.
type Policy struct {
	Name, Node, Egress string
	Family             Family
	Segments           []netip.Addr
}

// Family of addresses.
type Family string

// The families, by the names that an SRv6Policy uses for its traffic.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Families returns both families.
func Families() []Family { return []Family{IPv4, IPv6} }

// of returns the first address of the family.
func (f Family) of(list []netip.Addr) (netip.Addr, bool) {
	for _, a := range list {
		if a.Is4() == (f == IPv4) {
			return a, true
		}
	}
	return netip.Addr{}, false
}
