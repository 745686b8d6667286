package dataplane

import (
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// The tests name the types of the concepts without their packages.
type (
	AdjacencyKey = adjacency.Key
	Counter      = counter.Counter
	FullError    = table.FullError
	Limits       = settings.Limits
	Link         = ethernet.Link
	Locator      = settings.Locator
	Mode         = attach.Mode
	NextHop      = adjacency.NextHop
	Pod          = pod.Pod
	Port         = port.Port
	Punt         = event.Punt
	Settings     = settings.Settings
	TraceEvent   = event.TraceEvent
	TraceFilter  = event.TraceFilter
	Usage        = table.Usage
	VLAN         = adjacency.VLAN
)

// ErrTaken says that a TEID, a UE address or a prefix belongs to something else.
var ErrTaken = target.ErrTaken

// Session and the types below belong to package session.
type (
	Session        = session.Session
	Rule           = session.Rule
	RuleLimits     = session.RuleLimits
	RuleUsage      = session.RuleUsage
	Filter         = session.Filter
	FrameFilter    = session.FrameFilter
	Meter          = session.Meter
	Forwarding     = session.Forwarding
	ForwardingKind = session.ForwardingKind
	Direction      = session.Direction
	Action         = session.Action
	Container      = session.Container
	SessionEvent   = session.Event
	NoSessionError = session.MissingError
)

// The values of those.
const (
	Uplink   = session.Uplink
	Downlink = session.Downlink

	ActionDrop    = session.ActionDrop
	ActionGate    = session.ActionGate
	ActionForward = session.ActionForward
	ActionBuffer  = session.ActionBuffer
	ActionHold    = session.ActionHold
	ActionFull    = session.ActionFull

	ContainerNone     = session.ContainerNone
	ContainerDownlink = session.ContainerDownlink
	ContainerUplink   = session.ContainerUplink

	ForwardTable  = session.ForwardTable
	ForwardGTPU   = session.ForwardGTPU
	ForwardSRv6   = session.ForwardSRv6
	ForwardPolicy = session.ForwardPolicy
	ForwardLink   = session.ForwardLink

	EventNotify = session.EventNotify
	EventStop   = session.EventStop
)
