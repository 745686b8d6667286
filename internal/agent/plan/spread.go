package plan

import (
	"cmp"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/netdev"
)

// Spread is how packets come to several CPUs.
type Spread struct {
	spread.Config
	Method string // of the configuration
	Cards  []Card // which are to do it, where they are asked to
}

// Card is that of an interface.
type Card struct {
	Name  string
	Index int
	// Flows are the G-PDUs that come by it, if any do.
	Flows []netdev.FlowType
}

// spreadOf names the cards that are there: others are told when they come.
func spreadOf(c *config.Config, links *netdev.Snapshot) Spread {
	out := Spread{Config: spread.Config{CPUs: c.Spread.CPUs}, Method: cmp.Or(c.Spread.Method, config.SpreadXDP)}
	switch c.Spread.By {
	case config.SpreadUE:
		out.By = spread.UE
	case config.SpreadFlow:
		// No card sees the flows inside of tunnels.
		out.By, out.Method = spread.Flow, config.SpreadXDP
	}
	if out.By == spread.Off || out.Method == config.SpreadXDP {
		return out
	}
	for i := range c.Interfaces {
		in := &c.Interfaces[i]
		l, ok := links.Link(in.Name)
		if !ok {
			continue
		}
		card := Card{Name: in.Name, Index: l.Index}
		if in.HasRole(config.RoleN3, config.RoleN9) {
			card.Flows = netdev.FlowsOf5G(c.GTPU.Addresses)
		}
		out.Cards = append(out.Cards, card)
	}
	return out
}
