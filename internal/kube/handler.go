package kube

import (
	"log/slog"
	"net/netip"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Config configures a watcher.
type Config struct {
	Kubeconfig string // a file; the pod's service account unless set
	Namespace  string // of the ConfigMaps
	Node       string // the name of this node's Node
	Version    string // of this program, for the API server's log
	Trust      Trust
	Log        *slog.Logger
	// NetworkPolicies has what NetworkPolicies depend on watched. Tenants are those whose
	// addresses pods may have beside their own.
	NetworkPolicies bool
	Tenants         []overlay.Tenant
}

// Self is this node as its Node object describes it.
type Self struct {
	UID       string         // changes if the Node is created again
	PodCIDRs  []netip.Prefix // none: not assigned yet
	Addresses []netip.Addr   // of type InternalIP
	// Told is the address that the other nodes know: this node published it, and they had the time
	// to read it. Not valid: none yet.
	Told netip.Addr
}

// Path is a candidate path for this node.
type Path struct {
	// Name identifies the path: the name of Origin and that of the path in it.
	Name   string `json:"name"`
	Origin string `json:"origin"` // "configmap NAME" or "srv6policy NAME"
	// Advertised has a color of overlay, a preference, and the address of the
	// node as endpoint.
	srpolicy.Advertised
	srpolicy.DelayConstraint
}

// LocalSIDs are SIDs that a node's ConfigMap gives it in place of those from its
// locator. The zero value has none.
type LocalSIDs struct {
	DT4  netip.Addr `json:"DT4,omitzero"`
	DT6  netip.Addr `json:"DT6,omitzero"`
	DT46 netip.Addr `json:"DT46,omitzero"`
}

// Handler receives what is observed of the cluster. Its methods are called one after
// the other, each only with what has changed.
type Handler interface {
	// SetSelf reports this node's own Node.
	SetSelf(Self)
	// PutNode reports another node that is new or has changed, with the part of what it says
	// that the cluster vouches for.
	PutNode(overlay.Node)
	// ClaimGone reports that the locator that this node claimed has to be claimed again.
	ClaimGone()
	// DeleteNode reports a node that is gone or has left the overlay.
	DeleteNode(name string)
	// PutPath reports a candidate path for this node that is new or has changed.
	PutPath(Path)
	// WithdrawPath reports a path that is gone by its Name.
	WithdrawPath(name string)
	// SetLocalSIDs reports the SIDs in the ConfigMap.
	SetLocalSIDs(LocalSIDs)
	// SetClasses reports all traffic classes by their names.
	SetClasses(map[string]Class)
	// PodsChanged reports that PodLabels may return something else.
	PodsChanged()
	// NetworkPoliciesChanged reports that NetworkState may return something else.
	NetworkPoliciesChanged()
}

// Known is what an earlier watcher reported to the handler. It stays valid until the
// API server says otherwise.
type Known struct {
	Nodes     []overlay.Node
	Paths     []Path
	LocalSIDs LocalSIDs
	Classes   map[string]Class
}

// Verdict is the state of a path or a class that the handler received.
type Verdict struct {
	Path   string // its name
	Valid  bool
	Active bool
	Why    string
	// RoundTrips of the path's segment lists, in their order and separated by spaces; empty: none
	// is measured, or the path is not active.
	RoundTrips string
}

// DefaultPreference is the preference of a path that sets none. Configured paths are
// preferred to those that a node finds by itself.
const DefaultPreference = 200
