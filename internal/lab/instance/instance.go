package instance

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Kubeconfig is the file by which the administrator reaches the Kubernetes API.
func Kubeconfig(in *Instance) string { return filepath.Join(in.Dir(), "kubeconfig") }

// Look is an instance that is up, for who changes nothing of it and so need
// not wait for others.
func Look(t *topology.Topology, name string) (*Instance, error) {
	in, err := named(t, name)
	if err != nil {
		return nil, err
	}
	if err := in.load(); err != nil {
		return nil, err
	}
	if !in.State.Ready {
		return nil, fmt.Errorf("lab %s is not up: `culvert lab up %s` builds it", in.Name, t.Name)
	}
	return in, nil
}

// named is the instance of that name, or else of the topology's.
func named(t *topology.Topology, name string) (*Instance, error) {
	in := &Instance{Topology: t, Name: cmp.Or(name, t.Name)}
	if !topology.NameForm.MatchString(in.Name) {
		return nil, fmt.Errorf("--as: %q: use lower-case letters, digits and '-', at most 32", name)
	}
	return in, nil
}

// Where labs keep what they are doing, and where their daemons pin.
const (
	StateDir = "/run/culvert/lab"
	PinDir   = "/sys/fs/bpf/culvert-lab"
)

// Instance is a topology that is up, or about to be.
type Instance struct {
	*topology.Topology
	Name    string // the topology's, or what --as says
	Culvert string // path of the binary
	Core    string // folder with programs of others, or empty
	// Packages are folders with those that nodes of kind machine install: what is tested, and
	// what comes before it, or empty.
	Packages, PackagesBefore string
	State                    State
	lock                     *os.File
}

// Open locks the instance name of topology t and reads its state. It
// must be closed.
func Open(t *topology.Topology, name, culvert string) (*Instance, error) {
	in, err := named(t, name)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("labs make network namespaces: run as root")
	}
	in.Culvert = culvert
	if err := in.lockName(); err != nil {
		return nil, err
	}
	if err := in.load(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// Dir is the directory of the instance's files.
func (in *Instance) Dir() string { return filepath.Join(StateDir, in.Name) }

// File names a file of a node.
func (in *Instance) File(n *topology.Node, name string) string {
	return filepath.Join(in.Dir(), n.Name, name)
}

// Namespace is that of a node, whether it exists or not.
func (in *Instance) Namespace(n *topology.Node) namespace.Named {
	return namespace.Named{Name: "culvert-" + in.Name + "-" + n.Name}
}

// Pins is where the instance's daemons pin. While it exists, no other instance
// removes PinDir as empty.
func (in *Instance) Pins() string { return filepath.Join(PinDir, in.Name) }

// DiskDir is where nodes of kind kubelet have their root file systems: much for
// /run, which is mostly memory.
const DiskDir = "/var/lib/culvert-lab"

// Inside names a file of a node of kind kubelet as it is there now.
func (in *Instance) Inside(n *topology.Node, file string) string {
	p, _ := in.Process(n, NodeProcess)
	return filepath.Join("/proc", fmt.Sprint(p.PID), "root", file)
}

// Address of a node, pod or Service, in a family.
func (in *Instance) Address(name, family string) (netip.Addr, error) {
	var list []netip.Addr
	switch n := in.Node(name); {
	case n == nil:
		s := in.Service(name)
		if s == nil {
			return netip.Addr{}, fmt.Errorf("no node, pod or Service is called %q", name)
		}
		list = s.Addresses()
	case n.Kind == topology.Pod:
		list = in.State.Pods[name]
	default:
		list = in.Addresses(n)
	}
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return topology.FamilyOf(a) == family })
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("%s has no %s address", name, family)
	}
	return list[i], nil
}
