package connectivity

import (
	"context"
	"io"
	"net/netip"

	"github.com/culvert-net/culvert/internal/overlay"
)

// Cluster is what is asked of one.
type Cluster interface {
	// Nodes are all of the cluster, with the agents on them.
	Nodes(ctx context.Context) ([]Node, error)
	// Start makes the test's pods and their Service. Those that are there already
	// are somebody's: ErrThere.
	Start(ctx context.Context, d Deployment) error
	// Pods are the test's, as far as they have come.
	Pods(ctx context.Context) ([]Pod, error)
	Service(ctx context.Context) (Service, error)
	// Exec runs a command in a container, and returns what it wrote.
	Exec(ctx context.Context, in Container, stdin io.Reader, command ...string) ([]byte, error)
	PutPolicy(ctx context.Context, p Policy) error
	// PolicyState is what a policy's node says of it: Active, Refused, "" for
	// nothing yet, ... and why.
	PolicyState(ctx context.Context, p Policy) (state, why string, err error)
	DeletePolicy(ctx context.Context, name string) error
	// Clean removes everything that tests left behind, waits until it is gone, and
	// names it.
	Clean(ctx context.Context) ([]string, error)
}

// Node is one of the cluster.
type Node struct {
	Name      string
	Addresses []netip.Addr // internal ones
	Agent     Container    // none: there is no culvert on it
	Problem   string       // of the agent; "": it is ready
	// Overlay is what it tells the others; none where agents do not speak by the
	// Kubernetes API.
	Overlay *overlay.Node
}

// Container is where a command can run.
type Container struct {
	Namespace, Pod, Name string
}

// Roles of pods.
const (
	Client = "client"
	Server = "server"
	Host   = "host" // in the node's own network
)

// Roles are all of them.
func Roles() []string { return []string{Client, Server, Host} }

// Pod is one of the test's.
type Pod struct {
	Container
	Role, Node string
	Addresses  []netip.Addr
	Ready      bool
	// Problem is why it is not ready; Fatal: that does not change by itself.
	Problem string
	Fatal   bool
}

// Deployment is what the test's pods are.
type Deployment struct {
	Image string // that of the agents unless set
	Nodes []string
	Ports Ports
}

// Ports at which pods and nodes serve.
type Ports struct {
	Pod, Host, Service uint16
}

// Service is the one that leads to pods of role Server.
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

// Both of them, by the names that SRv6Policies use for traffic.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Families are both.
func Families() []Family { return []Family{IPv4, IPv6} }

// of is the first address of the family.
func (f Family) of(list []netip.Addr) (netip.Addr, bool) {
	for _, a := range list {
		if a.Is4() == (f == IPv4) {
			return a, true
		}
	}
	return netip.Addr{}, false
}
