package kube

import (
	"log/slog"
	"net/netip"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Config is what a watcher is told.
type Config struct {
	Kubeconfig string // a file; that of the pod's service account unless set
	Namespace  string // of the ConfigMaps
	Node       string // the name of this node's Node
	Version    string // of this program; the API server's log has it
	Log        *slog.Logger
}

// Self is this node as its Node object says.
type Self struct {
	UID       string         // another one: the Node was made anew
	PodCIDRs  []netip.Prefix // none: not assigned yet
	Addresses []netip.Addr   // of type InternalIP
}

// Path is a candidate path for this node.
type Path struct {
	// Name is what the path is known by: Origin's name and the path's in it.
	Name   string `json:"name"`
	Origin string `json:"origin"` // "configmap NAME" or "srv6policy NAME"
	// Advertised has a color of overlay, a preference, and the address of the
	// node as endpoint.
	srpolicy.Advertised
}

// LocalSIDs are SIDs of this node that its ConfigMap gives it, in place of those
// that it would take of its locator. The zero value is none.
type LocalSIDs struct {
	DT4  netip.Addr `json:"DT4,omitzero"`
	DT6  netip.Addr `json:"DT6,omitzero"`
	DT46 netip.Addr `json:"DT46,omitzero"`
}

// Handler hears of the cluster. Its methods are called one after the other, and
// only with what has changed since the last call.
type Handler interface {
	// SetSelf is for this node's own Node.
	SetSelf(Self)
	// PutNode is for another node that is new or has changed.
	PutNode(overlay.Node)
	// DeleteNode is for one that is gone, or is no node of the overlay any more.
	DeleteNode(name string)
	// PutPath is for a candidate path for this node that is new or has changed.
	PutPath(Path)
	// WithdrawPath is for one that is gone: its Name.
	WithdrawPath(name string)
	// SetLocalSIDs is for what the ConfigMap says of them.
	SetLocalSIDs(LocalSIDs)
}

// Known is what a handler heard from an earlier watcher. It holds until the API
// server says otherwise.
type Known struct {
	Nodes     []overlay.Node
	Paths     []Path
	LocalSIDs LocalSIDs
}

// Verdict is what became of a path that the handler was told.
type Verdict struct {
	Path   string // its name
	Valid  bool
	Active bool
	Why    string
}

// DefaultPreference is that of a path that sets none: what somebody wrote for a
// node goes before what the node finds by itself.
const DefaultPreference = 200
