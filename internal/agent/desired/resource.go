package desired

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Resource is one thing that somebody asks for. Value is of the type that the
// kind's list in config.Config holds, and for settings the section itself.
type Resource struct {
	Ref
	Origin Origin
	Value  any
}

// section joins a kind, or one key of the settings, and its place in a
// configuration.
type section struct {
	kind   Kind
	key    string // of settings
	decode func([]byte) (any, error)
	// list calls add for each resource of c, and put adds resources to c.
	list func(c *config.Config, add func(key string, value any))
	put  func(c *config.Config, all []Resource)
}

// sections are in the order in which resources are listed.
var sections = []section{
	listOf(KindInterface, func(c *config.Config) *[]config.Interface { return &c.Interfaces }, func(v config.Interface) string { return v.Name }),
	settings(KeyEncapsulation, func(c *config.Config) *config.Encapsulation { return &c.Encapsulation }, func(e config.Encapsulation) bool {
		return e == (config.Encapsulation{}) || e == (config.Encapsulation{HopLimit: config.DefaultHopLimit})
	}),
	settings(KeyDomain, func(c *config.Config) *[]netip.Prefix { return &c.Domain }, func(p []netip.Prefix) bool { return len(p) == 0 }),
	settings(KeyGTPU, func(c *config.Config) *config.GTPU { return &c.GTPU }, func(g config.GTPU) bool { return len(g.Addresses)+len(g.Pools) == 0 }),
	listOf(KindLocator, func(c *config.Config) *[]config.Locator { return &c.Locators }, func(v config.Locator) string { return v.Name }),
	listOf(KindSID, func(c *config.Config) *[]srv6.LocalSID { return &c.SIDs }, func(v srv6.LocalSID) string { return SIDKey(v.SID) }),
	listOf(KindPolicy, func(c *config.Config) *[]srpolicy.Policy { return &c.Policies }, func(v srpolicy.Policy) string { return v.Name }),
	listOf(KindCandidatePath, func(c *config.Config) *[]srpolicy.CandidatePath { return &c.CandidatePaths }, func(v srpolicy.CandidatePath) string { return v.Name }),
	listOf(KindSteering, func(c *config.Config) *[]srpolicy.Steering { return &c.Steering }, srpolicy.Steering.Key),
	listOf(KindClass, func(c *config.Config) *[]class.Class { return &c.TrafficClasses }, func(v class.Class) string { return v.Name }),
	listOf(KindTunnel, func(c *config.Config) *[]gtpu.Tunnel { return &c.Tunnels }, func(v gtpu.Tunnel) string { return v.Name }),
	settings(KeySpread, func(c *config.Config) *config.Spread { return &c.Spread }, func(s config.Spread) bool { return !s.IsSet() && len(s.CPUs) == 0 && s.Method == "" }),
	listOf(KindSlice, func(c *config.Config) *[]slice.Slice { return &c.Slices }, func(v slice.Slice) string { return v.Name }),
}

// listOf is a kind of which a configuration has a list.
func listOf[V any](kind Kind, of func(*config.Config) *[]V, key func(V) string) section {
	return section{
		kind: kind, decode: decode[V],
		list: func(c *config.Config, add func(string, any)) {
			for _, v := range *of(c) {
				add(key(v), v)
			}
		},
		put: func(c *config.Config, all []Resource) {
			list := of(c)
			*list = slices.Grow(*list, len(all))
			for i := range all {
				*list = append(*list, all[i].Value.(V))
			}
		},
	}
}

// settings is a section that a configuration has once. Nobody asks for one that
// is as it would be without a word.
func settings[V any](key string, of func(*config.Config) *V, unset func(V) bool) section {
	return section{
		kind: KindSettings, key: key, decode: decode[V],
		list: func(c *config.Config, add func(string, any)) {
			if v := *of(c); !unset(v) {
				add(key, v)
			}
		},
		put: func(c *config.Config, all []Resource) { *of(c) = all[len(all)-1].Value.(V) },
	}
}

func decode[V any](data []byte) (any, error) {
	var v V
	err := json.Unmarshal(data, &v)
	return v, err
}

func (s *section) holds(r Ref) bool {
	return s.kind == r.Kind && (s.kind != KindSettings || s.key == r.Key)
}

// Decode makes a resource of the JSON that the state file holds.
func Decode(r Ref, origin Origin, data []byte) (Resource, error) {
	for i := range sections {
		if !sections[i].holds(r) {
			continue
		}
		value, err := sections[i].decode(data)
		if err != nil {
			return Resource{}, fmt.Errorf("%s: %w", r, err)
		}
		return Resource{r, origin, value}, nil
	}
	return Resource{}, fmt.Errorf("%w: no such resource: %s", ErrNotFound, r)
}

// flatten lists the resources of a configuration.
func flatten(c *config.Config, origin Origin) []Resource {
	out := make([]Resource, 0, len(c.SIDs)+len(c.Policies)+len(c.Steering)+len(c.Tunnels)+16)
	for i := range sections {
		s := &sections[i]
		s.list(c, func(key string, value any) { out = append(out, Resource{Ref{s.kind, key}, origin, value}) })
	}
	return out
}

// Config is the reverse of flatten, with the settings of the process.
func Config(list []Resource, p Process) *config.Config {
	c := &config.Config{
		Limits: p.Limits, API: p.API, Metrics: p.Metrics, Log: p.Log,
		UPF: p.UPF, BGP: p.BGP, Overlay: p.Overlay, Liveness: p.Liveness,
	}
	for len(list) > 0 {
		i := slices.IndexFunc(sections, func(s section) bool { return s.holds(list[0].Ref) })
		run := 1 // resources of one kind mostly stand together
		for run < len(list) && sections[i].holds(list[run].Ref) {
			run++
		}
		sections[i].put(c, list[:run])
		list = list[run:]
	}
	return c
}

// Completed is a copy of c with the defaults filled in: the caller's stays as it
// is.
func Completed(c *config.Config) *config.Config {
	out := *c
	out.Interfaces = slices.Clone(c.Interfaces)
	out.Locators = slices.Clone(c.Locators)
	out.SIDs = slices.Clone(c.SIDs)
	out.Policies = slices.Clone(c.Policies)
	out.CandidatePaths = slices.Clone(c.CandidatePaths)
	out.SetDefaults()
	return &out
}

// SIDKey is the Key of a local SID.
func SIDKey(p netip.Prefix) string { return p.Masked().String() }

// Uses are the resources that a value refers to.
func Uses(value any) []Ref {
	var out []Ref
	add := func(kind Kind, name string) {
		if name != "" {
			out = append(out, Ref{kind, name})
		}
	}
	switch v := value.(type) {
	case srv6.LocalSID:
		add(KindPolicy, v.Policy)
	case gtpu.Tunnel:
		add(KindTunnel, v.SwitchTo)
		add(KindPolicy, v.Policy)
	case srpolicy.CandidatePath:
		add(KindPolicy, v.Policy)
	case srpolicy.Steering:
		add(KindPolicy, v.Policy)
		add(KindTunnel, v.Tunnel)
		if v.GTP4D != nil {
			add(KindPolicy, v.GTP4D.Policy)
		}
	case slice.Slice:
		for _, policy := range v.Policies() {
			add(KindPolicy, policy)
		}
	case class.Class:
		for _, name := range v.Match.Slices {
			add(KindSlice, name)
		}
	}
	return out
}

// Interface is the interface that a resource names; empty: it names none.
func (r Resource) Interface() string {
	switch v := r.Value.(type) {
	case config.Interface:
		return v.Name
	case srv6.LocalSID:
		return v.Interface
	case srpolicy.Steering:
		return v.Interface
	}
	return ""
}

// Kind names a sort of resource, as the configuration's lists do.
type Kind string

// The kinds, and the Key of each.
const (
	KindInterface     Kind = "interface"      // name
	KindLocator       Kind = "locator"        // name
	KindSID           Kind = "sid"            // prefix
	KindPolicy        Kind = "policy"         // name
	KindCandidatePath Kind = "candidate-path" // name
	KindSteering      Kind = "steering"       // prefix, prefix@interface, or interface[.vlan[.vlan]]
	KindClass         Kind = "class"          // name
	KindTunnel        Kind = "tunnel"         // name
	KindSlice         Kind = "slice"          // name
	KindSettings      Kind = "settings"       // encapsulation, domain, gtpu, spread: one of each
)

// Kinds are all kinds in the order of the configuration file.
var Kinds = []Kind{KindInterface, KindSettings, KindLocator, KindSID, KindPolicy, KindCandidatePath, KindSteering, KindClass, KindTunnel, KindSlice}

// Keys of KindSettings.
const (
	KeyEncapsulation = "encapsulation"
	KeyDomain        = "domain"
	KeyGTPU          = "gtpu"
	KeySpread        = "spread"
)

// Origin is where a resource comes from. Applying a file leaves the API's
// resources unchanged, and the reverse.
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

// Normalize lets people write a SID or a steering prefix as they like: an
// address stands for itself as a prefix, host bits and spelling do not matter.
func (r Ref) Normalize() Ref {
	if r.Kind != KindSID && r.Kind != KindSteering {
		return r
	}
	if p, err := netip.ParsePrefix(r.Key); err == nil {
		r.Key = p.Masked().String()
	} else if a, err := netip.ParseAddr(r.Key); err == nil {
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
