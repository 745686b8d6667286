package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/topologies"
)

// Addresses of a node's links, then those of its loopback device.
func (t *Topology) Addresses(n *Node) (list []netip.Addr) {
	var texts []string
	for _, e := range endsOf(t, n) {
		texts = append(texts, e.Addresses...)
	}
	for _, text := range append(texts, n.Addresses...) {
		list = append(list, netip.MustParsePrefix(text).Addr()) // they are valid: validatePrefixes
	}
	return list
}

// ISIS is an IS-IS router (level 2, IPv6) on every link of the node whose other
// end is one, too. The networks of the loopback device are advertised.
type ISIS struct {
	System  int            `json:"system"`            // the system identifier, from 1 on
	Metrics map[string]int `json:"metrics,omitempty"` // of interfaces: 10 unless set
	// Kernel are networks of static routes that are advertised beside.
	Kernel []string `json:"kernel,omitempty"`
	// TE has isisd keep a traffic engineering database. Each interface needs an address whose
	// last 64 bits no other has.
	TE bool `json:"te,omitempty"`
}

// Counts says whether the kernel of the node counts: SIDs of routes with the word
// count, and named counters of its nft ruleset.
func (n *Node) Counts() bool {
	return !n.Culvert() && (n.HasSIDs() || strings.Contains(n.NFT, "counter "))
}

// HasSIDs says whether the kernel counts packets at SIDs of the node.
func (n *Node) HasSIDs() bool {
	return slices.ContainsFunc(n.Routes, func(r string) bool { return strings.Contains(r, "seg6local") && strings.Contains(r, " count") })
}

// LinksOf are those that have an end at the node.
func (t *Topology) LinksOf(n *Node) []Link {
	return slices.DeleteFunc(slices.Clone(t.Links), func(l Link) bool {
		return !slices.ContainsFunc(l.Ends, func(e End) bool { return e.Node == n.Name })
	})
}

// Kind says what runs in a node's namespace.
type Kind string

// The kinds of nodes.
const (
	Host      Kind = "host"      // addresses and routes only
	Kernel    Kind = "kernel"    // forwards: the kernel's SRv6 (seg6local)
	FRR       Kind = "frr"       // forwards: routes come from FRR
	Culvert   Kind = "culvert"   // forwards: culvert run
	Cluster   Kind = "cluster"   // a node of a Kubernetes cluster: culvert run, with pods
	Pod       Kind = "pod"       // of a node of kind cluster: culvert-cni is its network
	APIServer Kind = "apiserver" // kube-apiserver and etcd; where nodes are kubelets the controllers, too
	Kubelet   Kind = "kubelet"   // a node of a Kubernetes cluster: containerd, kubelet, kube-proxy, and culvert by its manifest
	Switch    Kind = "switch"    // its links are one link
	SMFs      Kind = "smf"       // session management functions: culvert smf run
	Core      Kind = "core"      // a mobile core of others
	Machine   Kind = "machine"   // a fresh Debian, in which scripts install packages
)

// Daemon says whether the lab runs culvert in the node.
func (n *Node) Daemon() bool { return n.Kind == Culvert || n.Kind == Cluster }

// Culvert says whether culvert runs in the node, whoever started it.
func (n *Node) Culvert() bool { return n.Daemon() || n.Kind == Kubelet }

// Topology is one lab, as its YAML file describes it. A file that has the field
// base, the name of another lab, describes what differs from that one, and in without nodes of
// that one that it lacks: see onBase.
// Elements of lists may stand for several: see repeat.
type Topology struct {
	Name     string  `json:"name"`
	Summary  string  `json:"summary"`
	Nodes    []*Node `json:"nodes"`
	Links    []Link  `json:"links"`
	Variants         // nodes say what differs
	// Services are translated by every node of kind cluster.
	Services []Service `json:"services,omitempty"`
	// Chart are values of the chart by which nodes of kind kubelet get culvert, in place of the
	// manifest. What nodes have (image, version of CNI) is added.
	Chart map[string]any `json:"chart,omitempty"`
	// Outside is where the lab meets an SMF of the user's.
	Outside *Outside `json:"outside,omitempty"`
	// Notes are for whoever leaves the lab running; {lab} is the name of the instance.
	Notes string `json:"notes,omitempty"`
	// Setup is done when all nodes run.
	Setup  []Event `json:"setup,omitempty"`
	Checks []Check `json:"checks"`
}

// Node is one network namespace.
type Node struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Role string `json:"role,omitempty"` // for people: drawn by graph

	Addresses []string `json:"addresses,omitempty"` // of the loopback device
	// Routes are in iproute2's grammar, after `ip route add`.
	Routes []string `json:"routes,omitempty"`
	// Sysctls are names with slashes below /proc/sys, set before any link
	// exists.
	Sysctls map[string]string `json:"sysctls,omitempty"`

	// Config is the culvert configuration; where the daemon listens is added.
	Config map[string]any `json:"config,omitempty"`
	// N9 or Modes is what each of the topology's variants changes of it, and
	// Overlays what events may: see merge.
	N9       map[string]map[string]any `json:"n9,omitempty"`
	Modes    map[string]map[string]any `json:"modes,omitempty"`
	Overlays map[string]map[string]any `json:"overlays,omitempty"`
	// SMFs are the processes of a node of kind smf, one for each UPF.
	SMFs []*SMF `json:"smfs,omitempty"`
	// PodCIDRs are what a node of kind cluster has for its pods.
	PodCIDRs []string `json:"pod_cidrs,omitempty"`
	// Host is the node of a pod, and HostPorts what of it is open at the node.
	Host      string     `json:"host,omitempty"`
	HostPorts []HostPort `json:"host_ports,omitempty"`
	// Tenant is whose network a pod has, in place of the cluster's.
	Tenant string `json:"tenant,omitempty"`
	// Bandwidth is what a pod is held to.
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
	// Proxy is the mode of kube-proxy: of a node of kind kubelet, and of one of kind
	// cluster where there is a Kubernetes API. Labels are those of the latter's Node.
	Proxy  string            `json:"proxy,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// NFT is a ruleset in the language of nft, loaded before anything runs.
	NFT string `json:"nft,omitempty"`
	// Devices are interfaces of other types than a veth.
	Devices []Device `json:"devices,omitempty"`
	// GTPU are tunnel devices of a GTP-U endpoint in this node.
	GTPU []gtpulink.Link `json:"gtpu,omitempty"`
	// FRR are routing daemons that run beside whatever the node is.
	FRR *FRRConfig `json:"frr,omitempty"`
	// Engine is the network of a `culvert te run` that events start in a node with FRR. The
	// topology is what its isisd says, and the api of nodes is added.
	Engine map[string]any `json:"engine,omitempty"`
	// Programs of others run in this node, with Files that are written for them, as YAML, and
	// Subscribers that the core is told of.
	Programs    []*Program     `json:"programs,omitempty"`
	Files       map[string]any `json:"files,omitempty"`
	Subscribers *Subscribers   `json:"subscribers,omitempty"`
}

// FRRConfig is what FRR runs in a node.
type FRRConfig struct {
	Daemons []string `json:"daemons,omitempty"` // beside zebra
	Config  string   `json:"config,omitempty"`
	// ISIS runs isisd, with the configuration that it comes to.
	ISIS *ISIS `json:"isis,omitempty"`
}

// HostPort is a port of a pod that is open at its node, too.
type HostPort struct {
	Host     uint16 `json:"host"`
	Pod      uint16 `json:"pod"`
	Protocol string `json:"protocol"` // tcp or udp
}

// Bandwidth is a pod's, in kbit/s: what it gets, and what it sends.
type Bandwidth struct {
	Ingress int `json:"ingress"`
	Egress  int `json:"egress"`
}

// Device is an interface that the kernel makes by itself.
type Device struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`          // in iproute2's grammar, after `ip link add NAME type`
	MTU       int      `json:"mtu,omitempty"` // the kernel's choice unless set
	Addresses []string `json:"addresses,omitempty"`
}

// Link is a veth pair.
type Link struct {
	Ends []End `json:"ends"`
	MTU  int   `json:"mtu,omitempty"` // 1500 unless set
	// Offloads leaves the ends as the kernel makes them, with GSO: fit for tc, not
	// for XDP.
	Offloads bool `json:"offloads,omitempty"`
	// Kbits is what each direction carries, in kbit/s; 0: as much as there is. A queue holds
	// 50 ms. The ends are kernel routers: XDP does not see the queue.
	Kbits int `json:"kbit_s,omitempty"`
}

// End is one interface of a link.
type End struct {
	Node      string   `json:"node"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses,omitempty"`
	// PartialChecksums leaves transmit checksum offload on, as a virtual
	// machine's or pod's interface has it: frames leave with unfinished
	// checksums.
	PartialChecksums bool `json:"partial_checksums,omitempty"`
}

// ErrUnknown says that no topology has a name.
var ErrUnknown = errors.New("there is no lab")

// Names returns the names of all topologies.
func Names() ([]string, error) {
	files, err := fs.Glob(topologies.Files, "*.yaml")
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return files, err
}

// List returns all topologies, by name.
func List() ([]*Topology, error) {
	names, err := Names()
	if err != nil {
		return nil, err
	}
	var list []*Topology
	for _, name := range names {
		t, err := Load(name)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// Load reads the topology called name.
func Load(name string) (*Topology, error) {
	text, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("%w %q", ErrUnknown, name)
	}
	if text, err = onBase(text); err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	if t.Name != name {
		return nil, fmt.Errorf("lab %s: name: %q is not the name of its file", name, t.Name)
	}
	return t, nil
}

func read(name string) ([]byte, error) { return topologies.Files.ReadFile(name + ".yaml") }

// onBase lays a topology's text over that of its base, if it names one.
func onBase(text []byte) ([]byte, error) {
	var over, base map[string]any
	if err := yaml.UnmarshalStrict(text, &over); err != nil {
		return nil, err
	}
	name, _ := over["base"].(string)
	if name == "" {
		return text, nil
	}
	under, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("base: there is no lab %q", name)
	}
	if err := yaml.UnmarshalStrict(under, &base); err != nil {
		return nil, fmt.Errorf("base: %w", err)
	}
	// Nodes that without names are left out, and others merged. Links come to those of the base,
	// everything else is replaced.
	nodes, _ := base["nodes"].([]any)
	without, _ := over["without"].([]any)
	for _, out := range without {
		i := slices.IndexFunc(nodes, func(n any) bool { return NameOf(n) == out })
		if i < 0 {
			return nil, fmt.Errorf("without: %s has no node %q", name, out)
		}
		nodes = slices.Delete(nodes, i, i+1)
	}
	laid := maps.Clone(base)
	maps.Copy(laid, over)
	delete(laid, "base")
	delete(laid, "without")
	laid["nodes"] = nodes
	if more := over["nodes"]; more != nil {
		laid["nodes"] = Merge(nodes, more)
	}
	links, _ := base["links"].([]any)
	more, _ := over["links"].([]any)
	laid["links"] = slices.Concat(links, more)
	return yaml.Marshal(laid)
}

// Parse reads a topology. The error says all that is wrong with it.
func Parse(text []byte) (*Topology, error) {
	text, err := repeat(text)
	if err != nil {
		return nil, err
	}
	t := new(Topology)
	if err := yaml.UnmarshalStrict(text, t); err != nil {
		return nil, err
	}
	v := validator{t: t, problems: new([]error)}
	v.topology()
	return t, errors.Join(*v.problems...)
}

// Node returns the node called name, or nil.
func (t *Topology) Node(name string) *Node {
	return first(t.Nodes, func(n *Node) bool { return n.Name == name })
}

// first returns the first node for which match holds, or nil.
func first(nodes []*Node, match func(*Node) bool) *Node {
	for _, n := range nodes {
		if match(n) {
			return n
		}
	}
	return nil
}

// Devices returns the names of n's interfaces that are veths.
func (t *Topology) Devices(n *Node) (names []string) {
	for _, e := range endsOf(t, n) {
		names = append(names, e.Name)
	}
	return names
}

// endsOf are the ends of links at the node.
func endsOf(t *Topology, n *Node) (list []End) {
	for _, l := range t.Links {
		list = append(list, l.Ends...)
	}
	return slices.DeleteFunc(list, func(e End) bool { return e.Node != n.Name })
}
