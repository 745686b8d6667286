package lab

import (
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/topologies"
)

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
)

// daemon says whether the lab runs culvert in the node.
func (n *Node) daemon() bool { return n.Kind == Culvert || n.Kind == Cluster }

// culvert says whether culvert runs in the node, whoever started it.
func (n *Node) culvert() bool { return n.daemon() || n.Kind == Kubelet }

// forwards says whether the node is a router, by whatever means.
func (n *Node) forwards() bool {
	return n.daemon() || n.Kind == Kernel || n.Kind == FRR
}

// Topology is one lab, as its YAML file describes it. A file that has the field
// base, the name of another lab, describes what differs from that one: see lay.
type Topology struct {
	Name     string  `json:"name"`
	Summary  string  `json:"summary"`
	Nodes    []*Node `json:"nodes"`
	Links    []Link  `json:"links"`
	Variants         // nodes say what differs
	// Services are translated by every node of kind cluster.
	Services []Service `json:"services,omitempty"`
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

// Names of nodes become parts of file and namespace names.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// List returns all topologies, by name.
func List() ([]*Topology, error) {
	files, err := fs.Glob(topologies.Files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var list []*Topology
	for _, f := range files {
		t, err := Load(strings.TrimSuffix(path.Base(f), ".yaml"))
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
		return nil, fmt.Errorf("there is no lab %q: see `culvert lab list`", name)
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
	return yaml.Marshal(lay(base, over))
}

// lay is a topology over its base: nodes are merged, links come to those of the
// base, everything else is replaced.
func lay(base, over map[string]any) map[string]any {
	laid := maps.Clone(base)
	maps.Copy(laid, over)
	delete(laid, "base")
	if nodes := over["nodes"]; nodes != nil {
		laid["nodes"] = merge(base["nodes"], nodes)
	}
	links, _ := base["links"].([]any)
	more, _ := over["links"].([]any)
	laid["links"] = slices.Concat(links, more)
	return laid
}

// Parse reads and validates a topology.
func Parse(text []byte) (*Topology, error) {
	t := new(Topology)
	if err := yaml.UnmarshalStrict(text, t); err != nil {
		return nil, err
	}
	return t, t.validate()
}

// node returns the node called name, or nil.
func (t *Topology) node(name string) *Node {
	i := slices.IndexFunc(t.Nodes, func(n *Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return t.Nodes[i]
}

// devices returns the names of n's interfaces that are veths.
func (t *Topology) devices(n *Node) []string {
	var names []string
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node == n.Name {
				names = append(names, e.Name)
			}
		}
	}
	return names
}

func (t *Topology) validate() error {
	if !nameForm.MatchString(t.Name) {
		return fmt.Errorf("name: %q: use lower-case letters, digits and '-'", t.Name)
	}
	seen := map[string]bool{}
	for i, n := range t.Nodes {
		if err := n.validate(); err != nil {
			return fmt.Errorf("nodes[%d]: %w", i, err)
		}
		if seen[n.Name] {
			return fmt.Errorf("nodes[%d]: name: %q is there twice", i, n.Name)
		}
		seen[n.Name] = true
	}
	if err := t.validateSMFs(); err != nil {
		return err
	}
	if err := t.validateCluster(); err != nil {
		return err
	}
	if err := t.validateVariants(); err != nil {
		return err
	}
	devices := map[string]bool{}
	for i, l := range t.Links {
		if err := t.validateLink(l, devices); err != nil {
			return fmt.Errorf("links[%d]: %w", i, err)
		}
	}
	for i, n := range t.Nodes {
		if n.FRR != nil && n.FRR.ISIS != nil {
			if err := n.FRR.ISIS.validate(t, n); err != nil {
				return fmt.Errorf("nodes[%d]: %w", i, err)
			}
		}
	}
	for i := range t.Setup {
		if err := t.validateEvent(&t.Setup[i]); err != nil {
			return fmt.Errorf("setup[%d]: %w", i, err)
		}
	}
	names := map[string]bool{}
	for i := range t.Checks {
		c := &t.Checks[i]
		if err := t.validateCheck(c); err != nil {
			return fmt.Errorf("checks[%d] (%s): %w", i, c.Name, err)
		}
		if names[c.Name] {
			return fmt.Errorf("checks[%d]: name: %q is there twice", i, c.Name)
		}
		names[c.Name] = true
	}
	return nil
}

func (t *Topology) validateLink(l Link, devices map[string]bool) error {
	if len(l.Ends) != 2 {
		return fmt.Errorf("ends: %d given: a link has two", len(l.Ends))
	}
	for _, e := range l.Ends {
		if t.node(e.Node) == nil {
			return fmt.Errorf("ends: no node is called %q", e.Node)
		}
		if err := validateInterface(e.Name); err != nil {
			return fmt.Errorf("ends: %w", err)
		}
		if devices[e.Node+" "+e.Name] {
			return fmt.Errorf("ends: node %s has two interfaces %q", e.Node, e.Name)
		}
		devices[e.Node+" "+e.Name] = true
		if err := validatePrefixes("addresses", e.Addresses); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) validate() error {
	if !nameForm.MatchString(n.Name) {
		return fmt.Errorf("name: %q: use lower-case letters, digits and '-'", n.Name)
	}
	switch n.Kind {
	case Host, Kernel, FRR, Culvert, Cluster, Pod, APIServer, Kubelet, Switch, SMFs:
	default:
		return fmt.Errorf("kind: %q: use host, kernel, frr, culvert, cluster, pod, apiserver, kubelet, switch or smf", n.Kind)
	}
	if n.daemon() != (n.Config != nil) {
		return fmt.Errorf("config: %s: a node of kind culvert or cluster has one, others do not", n.Name)
	}
	if !n.daemon() && len(n.N9)+len(n.Modes)+len(n.Overlays) > 0 {
		return fmt.Errorf("n9, modes, overlays: %s: only a node of kind culvert or cluster has a configuration to change", n.Name)
	}
	if (n.Kind == SMFs) != (len(n.SMFs) > 0) {
		return fmt.Errorf("smfs: %s: a node of kind smf has some, others do not", n.Name)
	}
	if n.Kind == FRR && n.FRR == nil {
		return fmt.Errorf("frr: %s: a node of kind frr says what FRR runs", n.Name)
	}
	if n.Kind != Cluster && (len(n.PodCIDRs) > 0 || n.Proxy != "" && n.Kind != Kubelet || len(n.Labels) > 0) {
		return fmt.Errorf("pod_cidrs, proxy, labels: %s: only a node of kind cluster has them, and one of kind kubelet proxy", n.Name)
	}
	if n.Kind == Kubelet && n.Proxy == "" {
		return fmt.Errorf("proxy: %s: missing: use %s", n.Name, strings.Join(proxyModes, " or "))
	}
	if n.Proxy != "" && !slices.Contains(proxyModes, n.Proxy) {
		return fmt.Errorf("proxy: %q: use %s", n.Proxy, strings.Join(proxyModes, " or "))
	}
	for i := range n.GTPU {
		if err := n.GTPU[i].Validate(); err != nil {
			return fmt.Errorf("gtpu[%d]: %w", i, err)
		}
	}
	for i, d := range n.Devices {
		if err := d.validate(); err != nil {
			return fmt.Errorf("devices[%d]: %w", i, err)
		}
	}
	return validatePrefixes("addresses", n.Addresses)
}

func (d Device) validate() error {
	if err := validateInterface(d.Name); err != nil {
		return err
	}
	if d.Type == "" {
		return fmt.Errorf("type: missing: %s is of none", d.Name)
	}
	return validatePrefixes("addresses", d.Addresses)
}

// validateInterface: 15 bytes is what the kernel takes as an interface's name.
func validateInterface(name string) error {
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ ") {
		return fmt.Errorf("name: %q is no interface name of at most 15 bytes", name)
	}
	return nil
}

func validatePrefixes(field string, list []string) error {
	for _, s := range list {
		if _, err := netip.ParsePrefix(s); err != nil {
			return fmt.Errorf("%s: %q: give an address and its prefix length, as in 10.0.0.1/24", field, s)
		}
	}
	return nil
}
