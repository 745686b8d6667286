package config

import (
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Config is the whole desired state of a node. The YAML file and the management API
// use the names of its JSON fields.
type Config struct {
	Interfaces    []Interface       `json:"interfaces,omitempty"`
	Encapsulation Encapsulation     `json:"encapsulation,omitzero"`
	Domain        []netip.Prefix    `json:"domain,omitempty"` // SR domain: refused from interfaces with the role edge (RFC 8754 section 5.1)
	Locators      []Locator         `json:"locators,omitempty"`
	SIDs          []srv6.LocalSID   `json:"sids,omitempty"`
	Policies      []srpolicy.Policy `json:"policies,omitempty"`
	// CandidatePaths are further candidate paths of policies (RFC 9256).
	CandidatePaths []srpolicy.CandidatePath `json:"candidate_paths,omitempty"`
	Steering       []srpolicy.Steering      `json:"steering,omitempty"`
	// TrafficClasses say which packets take policies of which color, where several
	// policies lead to the endpoint.
	TrafficClasses []class.Class `json:"traffic_classes,omitempty"`
	GTPU           GTPU          `json:"gtpu,omitzero"`
	Tunnels        []gtpu.Tunnel `json:"tunnels,omitempty"`
	BGP            BGP           `json:"bgp,omitzero"`
	Overlay        Overlay       `json:"overlay,omitzero"`
	UPF            UPF           `json:"upf,omitzero"`
	Slices         []slice.Slice `json:"slices,omitempty"`
	Spread         Spread        `json:"spread,omitzero"`
	Liveness       Liveness      `json:"liveness,omitzero"`

	Limits  Limits  `json:"limits,omitzero"`
	API     API     `json:"api,omitzero"`
	Metrics Metrics `json:"metrics,omitzero"`
	Log     Log     `json:"log,omitzero"`
}

// Interface is an interface that the XDP program is attached to.
type Interface struct {
	Name string `json:"name"`
	// Mode is auto (native where the driver supports it, else generic), native or
	// generic.
	Mode string `json:"mode,omitempty" jsonschema:"enum=auto,enum=native,enum=generic"`
	// Roles say what may enter by the interface. What no role accepts is dropped, or
	// left to the kernel where host says so.
	Roles []Role `json:"roles,omitempty" jsonschema:"enum=n3,enum=n9,enum=n6,enum=n4,enum=sr,enum=edge,enum=any"`
	// Peers are the prefixes of those who may send GTP-U by an interface with the role n3
	// or n9. It must be set there: "any" stands for every sender.
	Peers Senders `json:"peers,omitempty"`
	// Host lists what of this host can be reached by the interface: bfd, bgp, dhcp, ntp,
	// ospf, ping, ssh, vrrp, tcp/PORT, udp/PORT; forward: the kernel may forward packets
	// that are for others; any: everything.
	Host HostList `json:"host,omitempty"`
	// FailOpen lets the kernel have every frame while the data path is not on the
	// interface: before the daemon has loaded it, and where it cannot be attached.
	// Otherwise the kernel gets what host lists, then too, and the rest is dropped.
	FailOpen bool `json:"fail_open,omitempty"`
}

// Encapsulation is what headends push, unless a policy says otherwise.
type Encapsulation struct {
	Source   netip.Addr `json:"source,omitzero"`
	HopLimit uint8      `json:"hop_limit,omitempty"` // 64 unless set
}

// Locator is an IPv6 prefix that contains SIDs of this node. The data path finds SIDs
// of exactly Prefix + FunctionBits by index.
type Locator struct {
	Name         string       `json:"name"`
	Prefix       netip.Prefix `json:"prefix"`
	FunctionBits uint8        `json:"function_bits,omitempty"` // 16 unless set
}

// GTPU is the node's GTP-U endpoint.
type GTPU struct {
	// Addresses receive GTP-U on UDP port 2152.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Pools are UE address pools: the data path finds steering entries for single
	// addresses (for IPv6: /64) in them by index.
	Pools []netip.Prefix `json:"pools,omitempty"`
	// MSSClamp lowers the MSS of TCP connections in T-PDUs between GTP-U and SRv6 to what
	// fits with the headers on both sides.
	MSSClamp bool `json:"mss_clamp,omitempty"`
}

// Limits size the tables. They cannot change while the data path is pinned.
type Limits struct {
	SIDs         uint32 `json:"sids,omitempty"`          // 65536 unless set
	Policies     uint32 `json:"policies,omitempty"`      // 4096 unless set
	SegmentLists uint32 `json:"segment_lists,omitempty"` // 16384 unless set
	Tunnels      uint32 `json:"tunnels,omitempty"`       // 65536 unless set
	Routes       uint32 `json:"routes,omitempty"`        // 65536 unless set
	Adjacencies  uint32 `json:"adjacencies,omitempty"`   // 4096 unless set
	// Sessions limits the sessions of the user plane function, and Filters their SDF
	// filters (default: 12 for each session). 0 sessions: no memory is reserved.
	Sessions uint32 `json:"sessions,omitempty"`
	Filters  uint32 `json:"filters,omitempty"`
	// NATAddresses limits the public addresses of NATs, each of which takes 1.5 MB. Default:
	// as many as upf.ue_pools have.
	NATAddresses uint32 `json:"nat_addresses,omitempty"`
	// PodFlows is how many flows of pods there is room for, 61 bytes each, rounded up to a
	// power of two. Where NetworkPolicies are enforced and the room is short, the pod with
	// the most flows gives up the one without packets for the longest time. Other flows that
	// find no room cost more time for each packet.
	// Default: 131072 on a node of an overlay; otherwise 0: none.
	PodFlows uint32 `json:"pod_flows,omitempty"`
}

// API is where the management API listens.
type API struct {
	Socket    string `json:"socket,omitempty"` // /run/culvert/culvert.sock unless set
	Listen    string `json:"listen,omitempty"` // host:port; beyond loopback only with TLS and a token
	TLSCert   string `json:"tls_cert,omitempty"`
	TLSKey    string `json:"tls_key,omitempty" secret:"path"`
	TokenFile string `json:"token_file,omitempty" secret:"path"`
	// PoliciesTokenFile has a token whose bearer may list SR policies, and nothing else.
	PoliciesTokenFile string `json:"policies_token_file,omitempty" secret:"path"`
	// ViewerTokenFile has a token whose bearer may look at the page, without identities of UEs, and change nothing.
	ViewerTokenFile string `json:"viewer_token_file,omitempty" secret:"path"`
	Page            bool   `json:"page,omitempty"` // serve the web page on listen
}

// Metrics is where Prometheus scrapes.
type Metrics struct {
	Listen string `json:"listen,omitempty"` // 127.0.0.1:9418 unless set; "off" for none
}

// Log is how the daemon logs.
type Log struct {
	Level  string `json:"level,omitempty" jsonschema:"enum=debug,enum=info,enum=warn,enum=error"`
	Format string `json:"format,omitempty" jsonschema:"enum=text,enum=json"`
}
