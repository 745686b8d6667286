package desired

import (
	"errors"
	"net/netip"
)

// Kind names a sort of resource, as the configuration's lists do.
type Kind string

// The kinds, and the Key of each.
const (
	KindInterface     Kind = "interface"      // name
	KindLocator       Kind = "locator"        // name
	KindSID           Kind = "sid"            // prefix
	KindPolicy        Kind = "policy"         // name
	KindCandidatePath Kind = "candidate-path" // name
	KindSteering      Kind = "steering"       // prefix, or interface[.vlan[.vlan]]
	KindTunnel        Kind = "tunnel"         // name
	KindSlice         Kind = "slice"          // name
	KindSettings      Kind = "settings"       // encapsulation, domain, gtpu: one of each
)

// Kinds are all kinds in the order of the configuration file.
var Kinds = []Kind{KindInterface, KindSettings, KindLocator, KindSID, KindPolicy, KindCandidatePath, KindSteering, KindTunnel, KindSlice}

// Keys of KindSettings.
const (
	KeyEncapsulation = "encapsulation"
	KeyDomain        = "domain"
	KeyGTPU          = "gtpu"
)

// Origin says who asks for a resource. Applying a file leaves the resources of
// the API alone, and the reverse.
type Origin string

// The origins.
const (
	OriginFile    Origin = "file"
	OriginAPI     Origin = "api"
	OriginBGP     Origin = "bgp"     // a BGP peer advertises it
	OriginKube    Origin = "kube"    // the Kubernetes API has it
	OriginOverlay Origin = "overlay" // the node needs it as a member of its cluster
)

// Asked says whether people asked for it: in the file or through the API.
func (o Origin) Asked() bool { return o == OriginFile || o == OriginAPI }

// Op is what a Change does.
type Op string

// The operations.
const (
	OpAdd    Op = "add"
	OpUpdate Op = "update"
	OpDelete Op = "delete"
)

// Change is one difference between the running and the desired state.
type Change struct {
	Op     Op     `json:"op"`
	Kind   Kind   `json:"kind"`
	Key    string `json:"key"`
	Detail string `json:"detail,omitempty"`
}

// Ref names one resource.
type Ref struct {
	Kind Kind   `json:"kind"`
	Key  string `json:"key"`
}

// String is "sid 2001:db8::/64".
func (r Ref) String() string { return string(r.Kind) + " " + r.Key }

// normalize lets people write a SID or a steering prefix as they like: an
// address stands for itself as a prefix, host bits and spelling do not matter.
func (r Ref) normalize() Ref {
	if r.Kind != KindSID && r.Kind != KindSteering {
		return r
	}
	if p, err := netip.ParsePrefix(r.Key); err == nil {
		r.Key = p.Masked().String()
	} else if a, err := netip.ParseAddr(r.Key); err == nil && a.Zone() == "" {
		r.Key = netip.PrefixFrom(a, a.BitLen()).String()
	}
	return r
}

// Errors that a caller may want to decide by; the messages say what to do.
var (
	// ErrInvalid: the configuration, or the result of a change, does not hold
	// together.
	ErrInvalid = errors.New("invalid configuration")
	// ErrNotFound: the resource does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the resource belongs to the other origin, or is in use.
	ErrConflict = errors.New("conflict")
)
