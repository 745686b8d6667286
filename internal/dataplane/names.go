package dataplane

import (
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// AdjacencyKey and the types below belong to the concepts; callers of Open pass them
// to DataPlane's fields and get them back. Each is documented where it is declared.
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
