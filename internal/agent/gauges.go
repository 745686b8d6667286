package agent

import (
	"maps"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
)

// Gauges are the figures that only metrics show.
type Gauges struct {
	Version   string // of the program
	DataPath  string // hash of the loaded build; "": Run is not ready, and nothing else is set
	Failures  int    // what is tried again
	Tables    map[string]dataplane.Usage
	Resources map[Owned]int
	Modes     map[string]string // of the configuration's interfaces; "": not attached
	Hops      map[string]int    // adjacencies by state
	SlowPath  map[string]uint64 // events
	Paths     int               // candidate paths that others advertise
	UPF       *UPFGauges        // of a node that is one
}

// Owned is what resources are counted by.
type Owned struct {
	Kind   Kind
	Origin Origin
}

// UPFGauges are those of a user plane function.
type UPFGauges struct {
	Events        map[string]uint64
	BufferedBytes int64
	PFCP          pfcp.Stats
}

// Gauges reads them. Before Run is ready there is the version only.
func (a *Agent) Gauges() Gauges {
	g := Gauges{Version: a.options.Version}
	c := a.core
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.isReady() != nil {
		return g
	}
	g.DataPath, g.Failures, g.Tables = c.dp.Build(), len(c.writer.Failures), c.dp.Counters.Usage()
	g.SlowPath, g.Paths = a.punts.Counters(), len(c.goal.Observed.Paths)
	g.Resources, g.Modes = map[Owned]int{}, map[string]string{}
	for _, kind := range desired.Kinds {
		g.Resources[Owned{kind, OriginFile}], g.Resources[Owned{kind, OriginAPI}] = 0, 0
	}
	for r := range c.goal.All() {
		g.Resources[Owned{r.Kind, r.Origin}]++
		if v, ok := r.Value.(config.Interface); ok {
			g.Modes[v.Name] = string(c.writer.Modes[v.Name])
		}
	}
	g.Hops = map[string]int{"ready": 0, "kernel": 0, "not_ready": 0}
	for _, h := range c.network.Hops() {
		switch {
		case h.Next == nil:
			g.Hops["not_ready"]++
		case h.Next.Pass:
			g.Hops["kernel"]++
		default:
			g.Hops["ready"]++
		}
	}
	if u := c.upf; u != nil && u.server != nil {
		stats := u.upf.Stats()
		g.UPF = &UPFGauges{Events: maps.Collect(stats.All()), BufferedBytes: stats.BufferedBytes.Load(), PFCP: u.server.Stats()}
	}
	return g
}
